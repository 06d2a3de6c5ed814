"""localqueue"""
