"""What keeps a worker from doing harm: a limit on its pace, and a pause when everything fails."""

from localqueue.resilience.circuit_breaker import Circuit, CircuitBreaker, CircuitState
from localqueue.resilience.rate_limiter import RateLimit, RateLimiter

__all__ = ["Circuit", "CircuitBreaker", "CircuitState", "RateLimit", "RateLimiter"]
