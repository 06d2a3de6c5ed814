-- Plain calls are noted in a daybook beside the file before they are posted to its tables: a mark says
-- up to which event that was done. Processes of the former version that have the file open know no
-- daybook, and use the numbers of what is noted: it is posted with other ones then.
INSERT INTO mark (name, seq) VALUES ('daybook', 0);
