-- The message says how many ended attempts it has, so that one without any is acknowledged without
-- looking for them; where it was put, when another queue took it; and whose copy it is.
ALTER TABLE message ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE message ADD COLUMN home INTEGER;
ALTER TABLE message ADD COLUMN copy_of INTEGER;
UPDATE message SET ended = (SELECT count(*) FROM attempt AS a WHERE a.message = message.id)
WHERE id IN (SELECT message FROM attempt);
CREATE INDEX message_copy     ON message (copy_of, queue) WHERE copy_of IS NOT NULL;

-- What is due is looked for queue by queue: another queue's backlog costs nobody anything.
DROP INDEX message_delayed;
DROP INDEX message_lease;
DROP INDEX message_expiring;
CREATE INDEX message_delayed  ON message (queue, due_at) WHERE state = 1;
CREATE INDEX message_lease    ON message (queue, due_at, worker, leased_at) WHERE state = 3;
CREATE INDEX message_expiring ON message (queue, expires_at, state)
    WHERE expires_at IS NOT NULL AND state < 3;

-- Each queue's journal is trimmed from its own oldest event on.
ALTER TABLE kept ADD COLUMN scanned INTEGER NOT NULL DEFAULT 0;
DELETE FROM mark WHERE name = 'trim';

ALTER TABLE publication ADD COLUMN fingerprint INTEGER NOT NULL DEFAULT 0;
CREATE INDEX publication_expiring ON publication (topic, expires_at)
    WHERE expires_at IS NOT NULL;
