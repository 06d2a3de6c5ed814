-- Making a sound file out of rows that were saved from a damaged one.

-- name: newest_number
SELECT max(n) FROM (
    SELECT 0 AS n UNION ALL SELECT max(seq) FROM event UNION ALL SELECT max(id) FROM message
    UNION ALL SELECT max(seq) FROM publication UNION ALL SELECT max(seq) FROM mark)

-- name: use_of_numbers
-- A process that knows no daybook has used what is noted there.
SELECT 1 FROM event WHERE seq BETWEEN :first AND :last
UNION ALL SELECT 1 FROM message WHERE id BETWEEN :first AND :last
UNION ALL SELECT 1 FROM publication WHERE seq BETWEEN :first AND :last LIMIT 1

-- name: signs_of_posting
SELECT 1 FROM event WHERE seq BETWEEN :first AND :last AND at = :at
UNION ALL SELECT 1 FROM message WHERE id BETWEEN :first AND :last AND created_at = :at LIMIT 1

-- name: newest_time
SELECT coalesce((SELECT at FROM event ORDER BY seq DESC LIMIT 1),
    (SELECT max(created_at) FROM message), 0.0)

-- name: forget_ends
DELETE FROM ended

-- name: list_ends
-- Of all lives that the journal tells: everything that is saved counts as folded.
INSERT INTO ended (message, seq) SELECT message, seq FROM event
WHERE message IS NOT NULL AND to_state IS NULL ORDER BY message, seq

-- name: forget_ended
-- On a page that was free for long a message may still be written that has ended since.
DELETE FROM message WHERE EXISTS
    (SELECT 1 FROM ended AS d CROSS JOIN event AS e
        WHERE d.message = coalesce(message.origin, message.id) AND d.seq > message.last
            AND e.seq = d.seq AND e.queue = message.queue)

-- name: has_ended
SELECT 1 FROM ended AS d CROSS JOIN event AS e WHERE d.message = ? AND e.seq = d.seq AND e.queue = ?

-- name: missing_queues
-- Numbers that a checksum proves.
SELECT queue FROM message UNION SELECT topic FROM publication EXCEPT SELECT id FROM queue

-- name: has_queue
SELECT 1 FROM queue WHERE id = ?

-- name: forget_unknown_topics
UPDATE queue SET topic = NULL WHERE topic NOT IN (SELECT id FROM queue)

-- name: forget_unknown_subscriptions
DELETE FROM subscription WHERE queue NOT IN (SELECT id FROM queue)
    OR topic NOT IN (SELECT id FROM queue)

-- name: last_unknown_event
SELECT coalesce(max(seq), 0) FROM event WHERE queue NOT IN (SELECT id FROM queue)

-- name: forget_unknown_events
DELETE FROM event WHERE queue NOT IN (SELECT id FROM queue)

-- name: add_queue
INSERT INTO queue (id, name, settings, version, topic) VALUES (?, ?, ?, 1, NULL)

-- name: configurations
SELECT detail FROM event WHERE queue = ? AND kind = 0 AND detail IS NOT NULL ORDER BY seq

-- name: guess_fanout
SELECT min(until IS NOT NULL) FROM subscription WHERE topic = ?

-- name: settle_states
-- What waits for nothing has no time to wait for, and nobody holds a lease from another life.
UPDATE message SET
    state = CASE WHEN state = 3 OR (state IN (1, 2) AND due_at IS NULL) THEN 0
        WHEN state = 2 AND key IS NULL THEN 1 ELSE state END,
    due_at = CASE WHEN state IN (1, 2) THEN due_at END,
    turn = CASE WHEN key IS NOT NULL THEN coalesce(min(turn, :newest), id) END,
    body = CASE WHEN value IS NULL THEN body END,
    home = CASE WHEN home IN (SELECT id FROM queue) THEN home END,
    token = NULL, worker = NULL, liveness = NULL, note = NULL, leased_at = NULL, cancel = 0

-- name: forget_impossible_times
-- No delay is that long: the number was damaged, and would keep its message for ever.
UPDATE message SET pos = min(pos, :now),
    state = CASE WHEN state = 1 THEN 0 ELSE state END,
    due_at = CASE WHEN state = 2 THEN :now END
WHERE pos > :latest OR due_at > :latest

-- name: leases
SELECT id, token, leased_at, attempts, worker FROM message
WHERE state = 3 AND token IS NOT NULL AND leased_at IS NOT NULL

-- name: add_attempt
INSERT OR IGNORE INTO attempt (message, seq, entries) VALUES (?, ?, ?)

-- name: forget_attempts
DELETE FROM attempt WHERE message NOT IN (SELECT id FROM message)

-- name: count_attempts
UPDATE message SET ended = (SELECT count(*) FROM attempt AS a WHERE a.message = message.id)
WHERE ended <> 0 OR id IN (SELECT message FROM attempt)

-- name: hold_the_others
UPDATE message SET state = 2, due_at = coalesce(due_at, pos)
WHERE key IS NOT NULL AND state < 2 AND EXISTS
    (SELECT 1 FROM message AS o WHERE o.queue = message.queue AND o.key = message.key
        AND o.key IS NOT NULL AND o.state < 4 AND (o.turn, o.id) < (message.turn, message.id))

-- name: promote_heads
-- The one before it may be among what was lost.
UPDATE message SET
    state = CASE WHEN due_at > :now THEN 1 ELSE 0 END,
    pos = CASE WHEN due_at > :now THEN due_at ELSE :now END,
    due_at = CASE WHEN due_at > :now THEN due_at END
WHERE key IS NOT NULL AND state = 2 AND NOT EXISTS
    (SELECT 1 FROM message AS o WHERE o.queue = message.queue AND o.key = message.key
        AND o.key IS NOT NULL AND o.state < 4 AND (o.turn, o.id) < (message.turn, message.id))

-- name: mend_first_events
-- A message's number is that of the event that made it.
UPDATE event SET message = coalesce(m.origin, m.id), queue = m.queue FROM message AS m
WHERE m.id = event.seq AND (event.message IS NOT coalesce(m.origin, m.id) OR event.queue <> m.queue)

-- name: mend_published_events
UPDATE event SET message = p.seq, queue = p.topic FROM publication AS p
WHERE p.seq = event.seq AND (event.message IS NOT p.seq OR event.queue <> p.topic)

-- name: mend_chains
-- From its first event on a life can be read again; what lies between is in the journal.
UPDATE message SET last = id WHERE last > :newest OR EXISTS
    (SELECT 1 FROM event AS e WHERE e.seq = message.last
        AND (e.message IS NOT coalesce(message.origin, message.id) OR e.queue <> message.queue))

-- name: cut_chains
UPDATE event SET prev = NULL WHERE prev >= seq OR EXISTS
    (SELECT 1 FROM event AS p WHERE p.seq = event.prev AND p.message IS NOT event.message)

-- name: mend_missing_ends
UPDATE message SET last = id WHERE last > :trimmed AND last <> id
    AND NOT EXISTS (SELECT 1 FROM event AS e WHERE e.seq = message.last)

-- name: cut_missing
UPDATE event SET prev = NULL WHERE prev > :trimmed
    AND NOT EXISTS (SELECT 1 FROM event AS p WHERE p.seq = event.prev)

-- name: delete_publication
DELETE FROM publication WHERE topic = ? AND offset = ?

-- name: lost_subscriptions
SELECT id, name, topic FROM queue
WHERE topic IS NOT NULL AND id NOT IN (SELECT queue FROM subscription)

-- name: topics_without_readers
SELECT id, name FROM queue WHERE id IN (SELECT topic FROM publication)
    AND id NOT IN (SELECT topic FROM subscription)

-- name: next_queue
SELECT max(id) + 1 FROM queue

-- name: first_offset
SELECT min(offset) FROM publication WHERE topic = ?

-- name: add_subscription
INSERT INTO subscription (queue, topic, name, position, until) VALUES (?, ?, ?, ?, ?)

-- name: name_topics
UPDATE queue SET topic = (SELECT s.topic FROM subscription AS s WHERE s.queue = queue.id)

-- name: told_ends
SELECT queue, last FROM topic

-- name: topics
SELECT id FROM queue WHERE id IN (SELECT topic FROM publication)
    OR id IN (SELECT topic FROM subscription) OR id IN (SELECT queue FROM topic)

-- name: last_offset
SELECT max(n) FROM (SELECT 0 AS n
    UNION ALL SELECT max(offset) FROM publication WHERE topic = ?1
    UNION ALL SELECT max(position) FROM subscription WHERE topic = ?1
    UNION ALL SELECT max(until) FROM subscription WHERE topic = ?1
    UNION ALL SELECT max(k.offset) FROM skipped AS k JOIN subscription AS s ON s.queue = k.queue
        WHERE s.topic = ?1)

-- name: offsets
SELECT offset FROM publication WHERE topic = ? ORDER BY offset

-- name: write_topic
INSERT OR REPLACE INTO topic (queue, last) VALUES (?, ?)

-- name: forget_skipped
DELETE FROM skipped WHERE queue NOT IN (SELECT queue FROM subscription)

-- name: subscribers
SELECT queue, position, coalesce(until, :last) FROM subscription WHERE topic = :topic

-- name: cut_positions
UPDATE subscription SET position = min(position, :last), until = min(until, :last)
WHERE topic = :topic

-- name: move
UPDATE subscription SET position = ? WHERE queue = ?

-- name: skip
INSERT OR IGNORE INTO skipped (queue, offset) VALUES (?, ?)

-- name: forget_foreign_keys
DELETE FROM dedupe WHERE queue NOT IN (SELECT id FROM queue) OR message > :newest
    OR (kind = 1 AND expires_at IS NULL)

-- name: forget_keys_of_nobody
DELETE FROM dedupe WHERE expires_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.id = dedupe.message)
    AND NOT EXISTS
        (SELECT 1 FROM message AS m WHERE m.origin = dedupe.message AND m.queue = dedupe.queue)
    AND NOT EXISTS
        (SELECT 1 FROM publication AS p JOIN subscription AS s ON s.topic = p.topic
        WHERE p.seq = dedupe.message AND s.queue = dedupe.queue AND p.offset > s.position
            AND p.offset <= coalesce(s.until, p.offset) AND NOT EXISTS
                (SELECT 1 FROM skipped AS k WHERE k.queue = s.queue AND k.offset = p.offset))

-- name: forget_keys_of_others
DELETE FROM dedupe WHERE kind = 0 AND (
    EXISTS (SELECT 1 FROM message AS m
        WHERE m.id = dedupe.message AND m.dedupe_key IS NOT dedupe.key)
    OR EXISTS (SELECT 1 FROM message AS m WHERE m.origin = dedupe.message
        AND m.queue = dedupe.queue AND m.dedupe_key IS NOT dedupe.key)
    OR EXISTS (SELECT 1 FROM publication AS p JOIN subscription AS s ON s.topic = p.topic
        WHERE p.seq = dedupe.message AND s.queue = dedupe.queue
            AND p.dedupe_key || ':' || s.name IS NOT dedupe.key))

-- name: forget_doubtful_keys
-- Better a message twice than never: a key of one that may be lost would refuse its repetition.
DELETE FROM dedupe WHERE NOT EXISTS (SELECT 1 FROM message AS m WHERE m.id = dedupe.message)
    AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.origin = dedupe.message)
    AND NOT EXISTS (SELECT 1 FROM publication AS p WHERE p.seq = dedupe.message)
    AND NOT EXISTS (SELECT 1 FROM ended AS d WHERE d.message = dedupe.message)

-- name: forget_bodies_of_events
UPDATE event SET body = NULL WHERE body IS NOT NULL AND body NOT IN (SELECT id FROM body)

-- name: count_bodies
INSERT INTO body_use (body, n) SELECT body, count(*) FROM (
    SELECT body FROM message WHERE body IS NOT NULL UNION ALL SELECT body FROM publication
    UNION ALL SELECT body FROM event WHERE body IS NOT NULL) GROUP BY body

-- name: forget_bodies
DELETE FROM body WHERE id NOT IN (SELECT body FROM body_use)

-- name: forget_readers
DELETE FROM reader WHERE seq > :newest

-- name: forget_workers
DELETE FROM worker WHERE queue NOT IN (SELECT id FROM queue)

-- name: forget_kept
DELETE FROM kept WHERE queue NOT IN (SELECT id FROM queue)

-- name: kept_events
SELECT q.id, count(e.seq), coalesce(min(e.seq) - 1, 0) FROM queue AS q
LEFT JOIN event AS e ON e.queue = q.id GROUP BY q.id

-- name: keep
INSERT INTO kept (queue, n, trimmed, scanned) VALUES (:queue, :n, :lost, :scanned)
ON CONFLICT (queue) DO UPDATE SET n = excluded.n, scanned = excluded.scanned,
    trimmed = max(min(trimmed, :newest), excluded.trimmed)

-- name: trimmed
SELECT coalesce(max(trimmed), 0) FROM kept

-- name: count_states
INSERT INTO counter (queue, state, n)
SELECT queue, state, count(*) FROM message GROUP BY queue, state

-- name: write_marks
INSERT OR REPLACE INTO mark (name, seq) VALUES ('fold', ?1), ('span', ?1), ('daybook', ?1)
