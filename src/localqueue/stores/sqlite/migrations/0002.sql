-- The message says how many ended attempts it has, so that one without any is acknowledged without
-- looking for them.
ALTER TABLE message ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
UPDATE message SET ended = (SELECT count(*) FROM attempt AS a WHERE a.message = message.id)
WHERE id IN (SELECT message FROM attempt);
