-- What must hold between the rows of a file, as statements that find where it does not.
-- Each answers with the row first, and what its sentence in invariants.py needs after it.
-- :newest is the newest event, :fold up to where the journal is folded, :span up to where it has
-- spans, :trimmed up to where any queue's journal was trimmed.

-- name: wrong_state_fields
-- A lease has a token and an end; what waits for a time or for its key has that time.
SELECT id FROM message WHERE
    (state = 3) <> (token IS NOT NULL) OR (state = 3) <> (leased_at IS NOT NULL)
    OR (state IN (1, 2, 3)) <> (due_at IS NOT NULL)

-- name: wrong_place_of_value
SELECT id FROM message WHERE (value IS NULL) = (body IS NULL)

-- name: numbers_to_come
-- Numbers that the journal has not given yet would be given twice.
SELECT 'message', id FROM message
    WHERE max(id, last, coalesce(token, 0), coalesce(turn, 0), coalesce(origin, 0)) > :newest
UNION ALL SELECT 'publication', seq FROM publication WHERE seq > :newest
UNION ALL SELECT 'body', id FROM body WHERE id > :newest
UNION ALL SELECT 'dedupe', key FROM dedupe WHERE message > :newest
UNION ALL SELECT 'reader', name FROM reader WHERE seq > :newest
UNION ALL SELECT 'mark', name FROM mark WHERE seq > :newest

-- name: wrong_key_fields
SELECT id FROM message WHERE (key IS NULL) <> (turn IS NULL) OR (state = 2 AND key IS NULL)

-- name: wrong_heads
-- Of each ordering key exactly one is not held; with none the key stands still for ever.
SELECT queue || ' ' || key, sum(state <> 2) FROM message WHERE key IS NOT NULL AND state < 4
GROUP BY queue, key HAVING sum(state <> 2) <> 1

-- name: late_heads
SELECT m.id, m.key FROM message AS m
WHERE m.key IS NOT NULL AND m.state < 4 AND m.state <> 2 AND EXISTS
    (SELECT 1 FROM message AS o WHERE o.queue = m.queue AND o.key = m.key AND o.key IS NOT NULL
        AND o.state < 4 AND o.turn < m.turn)

-- name: counted
SELECT queue, state, sum(n) FROM (
    SELECT queue, state, n FROM counter
    UNION ALL SELECT queue, from_state, -n FROM event WHERE seq > :fold AND from_state IS NOT NULL
    UNION ALL SELECT queue, to_state, n FROM event WHERE seq > :fold AND to_state IS NOT NULL
) GROUP BY queue, state HAVING sum(n) <> 0

-- name: real_counts
SELECT queue, state, count(*) FROM message GROUP BY queue, state

-- name: wrong_bodies
SELECT id, sum(used), sum(counted), sum(there) FROM (
    SELECT body AS id, 1 AS used, 0 AS counted, 0 AS there FROM message WHERE body IS NOT NULL
    UNION ALL SELECT body, 1, 0, 0 FROM publication
    UNION ALL SELECT body, 1, 0, 0 FROM event WHERE body IS NOT NULL
    UNION ALL SELECT body, 0, n, 0 FROM body_use
    UNION ALL SELECT id, 0, 0, 1 FROM body
) GROUP BY id HAVING sum(used) <> sum(counted) OR sum(there) <> 1 OR sum(used) = 0

-- name: content_of (fragment)
SELECT m.id, m.queue, m.origin, m.codec, m.checksum, m.headers,
    coalesce(m.value, (SELECT b.value FROM body AS b WHERE b.id = m.body))
FROM message AS m

-- name: contents
{content_of} ORDER BY m.id

-- name: content
{content_of} WHERE m.id = ?

-- name: published_contents
SELECT p.topic, p.offset, p.seq, p.codec, p.checksum, p.headers, b.value
FROM publication AS p LEFT JOIN body AS b ON b.id = p.body ORDER BY p.topic, p.offset

-- name: wrong_attempts
SELECT m.id, m.ended, count(a.seq) FROM message AS m LEFT JOIN attempt AS a ON a.message = m.id
GROUP BY m.id HAVING m.ended <> count(a.seq)

-- name: attempts_of_nobody
SELECT DISTINCT message FROM attempt
WHERE NOT EXISTS (SELECT 1 FROM message AS m WHERE m.id = attempt.message)

-- name: entries
SELECT message, seq, entries FROM attempt

-- name: keys_of_nobody
-- Without an end of its own a key lives as long as its message: a row, or an unread publication.
SELECT d.queue || ' ' || d.key, d.message FROM dedupe AS d
WHERE d.expires_at IS NULL AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.id = d.message)
    AND NOT EXISTS
        (SELECT 1 FROM message AS m WHERE m.origin = d.message AND m.queue = d.queue)
    AND NOT EXISTS
        (SELECT 1 FROM publication AS p JOIN subscription AS s ON s.topic = p.topic
        WHERE p.seq = d.message AND s.queue = d.queue AND p.offset > s.position
            AND p.offset <= coalesce(s.until, p.offset) AND NOT EXISTS
                (SELECT 1 FROM skipped AS k WHERE k.queue = s.queue AND k.offset = p.offset))

-- name: keys_of_others
SELECT d.queue || ' ' || d.key, d.message FROM dedupe AS d WHERE d.kind = 0 AND (
    EXISTS (SELECT 1 FROM message AS m WHERE m.id = d.message AND m.dedupe_key IS NOT d.key)
    OR EXISTS (SELECT 1 FROM message AS m WHERE m.origin = d.message AND m.queue = d.queue
        AND m.dedupe_key IS NOT d.key))

-- name: wrong_kinds_of_key
SELECT queue || ' ' || key, kind FROM dedupe
WHERE kind NOT IN (0, 1) OR (kind = 1 AND expires_at IS NULL)

-- name: wrong_subscriptions
SELECT s.queue, s.name, s.position, s.until, t.last
FROM subscription AS s LEFT JOIN topic AS t ON t.queue = s.topic
WHERE s.position < 0 OR s.position > coalesce(t.last, 0) OR s.until > coalesce(t.last, 0)

-- name: unlike_subscriptions
-- A queue's row and its subscription say the same.
SELECT q.id, q.name FROM queue AS q LEFT JOIN subscription AS s ON s.queue = q.id
WHERE q.topic IS NOT s.topic

-- name: gaps_in_logs
-- What a subscriber has not read is in the log without a gap, or will be skipped.
SELECT s.queue, s.name, s.last - s.position, s.there FROM (
    SELECT a.queue, a.name, a.position, min(t.last, coalesce(a.until, t.last)) AS last,
        (SELECT count(*) FROM publication AS p WHERE p.topic = a.topic AND p.offset > a.position
            AND p.offset <= min(t.last, coalesce(a.until, t.last)))
        + (SELECT count(*) FROM skipped AS k WHERE k.queue = a.queue AND k.offset > a.position
            AND k.offset <= min(t.last, coalesce(a.until, t.last)) AND NOT EXISTS
                (SELECT 1 FROM publication AS p WHERE p.topic = a.topic AND p.offset = k.offset))
        AS there
    FROM subscription AS a JOIN topic AS t ON t.queue = a.topic) AS s
WHERE s.last > s.position AND s.there <> s.last - s.position

-- name: skipped_by_nobody
SELECT k.queue || ' ' || k.offset FROM skipped AS k
LEFT JOIN subscription AS s ON s.queue = k.queue LEFT JOIN topic AS t ON t.queue = s.topic
WHERE s.queue IS NULL OR k.offset > coalesce(t.last, 0)

-- name: publications_to_come
SELECT p.topic || ' ' || p.offset, coalesce(t.last, 0)
FROM publication AS p LEFT JOIN topic AS t ON t.queue = p.topic
WHERE p.offset > coalesce(t.last, 0)

-- name: wrong_events
SELECT seq FROM event WHERE kind NOT BETWEEN 0 AND :kinds OR by NOT BETWEEN 0 AND 2 OR n < 0
    OR from_state NOT BETWEEN 0 AND 4 OR to_state NOT BETWEEN 0 AND 4

-- name: broken_chains
-- A life is read by following prev; only what was trimmed may be missing.
SELECT e.seq, e.prev FROM event AS e LEFT JOIN event AS p ON p.seq = e.prev
WHERE e.prev IS NOT NULL AND (e.prev >= e.seq
    OR (p.seq IS NULL AND e.prev > :trimmed) OR (p.seq IS NOT NULL AND p.message IS NOT e.message))

-- name: wrongly_listed_ends
SELECT d.message || ' ' || d.seq, d.seq FROM ended AS d LEFT JOIN event AS e ON e.seq = d.seq
WHERE e.seq IS NULL OR e.message IS NOT d.message OR e.to_state IS NOT NULL

-- name: unlisted_ends
-- A life that is gone is found by the list alone.
SELECT e.seq, e.message FROM event AS e
WHERE e.seq <= :fold AND e.message IS NOT NULL AND e.to_state IS NULL AND NOT EXISTS
    (SELECT 1 FROM ended AS d WHERE d.message = e.message AND d.seq = e.seq)

-- name: wrong_spans
-- A span ends with an event of its queue, before the mark; what is in two of them would be told
-- twice. Only the end of one that was trimmed may be missing: the former version leaves it behind.
SELECT s.queue || ' ' || s.last, s.first, s.last FROM span AS s
LEFT JOIN event AS e ON e.seq = s.last LEFT JOIN kept AS k ON k.queue = s.queue
WHERE s.first > s.last OR s.last > (SELECT seq FROM mark WHERE name = 'span')
    OR e.queue <> s.queue OR (e.seq IS NULL AND s.last > coalesce(k.trimmed, 0)) OR EXISTS
        (SELECT 1 FROM span AS o WHERE o.queue = s.queue AND o.last >= s.first AND o.last < s.last)

-- name: events_outside
-- What no span has is never told to those who read the journal of this queue.
SELECT e.seq, e.queue FROM event AS e WHERE e.seq <= :span AND e.seq < coalesce(
    (SELECT s.first FROM span AS s WHERE s.queue = e.queue AND s.last >= e.seq
        ORDER BY s.last LIMIT 1), e.seq + 1)

-- name: wrong_ends
-- The newest event of a message is of this message.
SELECT m.id, m.last FROM message AS m LEFT JOIN event AS e ON e.seq = m.last
WHERE (e.seq IS NULL AND m.last > :trimmed) OR (e.seq IS NOT NULL
    AND (e.message IS NOT coalesce(m.origin, m.id) OR e.queue <> m.queue))

-- name: wrong_tokens
-- A token is the number of the event that leased its message.
SELECT m.id, m.token FROM message AS m LEFT JOIN event AS e ON e.seq = m.token
WHERE m.token IS NOT NULL AND ((e.seq IS NULL AND m.token > :trimmed) OR (e.seq IS NOT NULL
    AND (e.kind <> 3 OR e.message IS NOT coalesce(m.origin, m.id))))

-- name: wrong_kept
SELECT queue, sum(kept), sum(there) FROM (
    SELECT queue, n AS kept, 0 AS there FROM kept
    UNION ALL SELECT queue, 0, 1 FROM event WHERE seq <= :fold
) GROUP BY queue HAVING sum(kept) <> sum(there)

-- name: passed_events
-- The trimmer never comes back to what it has passed.
SELECT k.queue, k.trimmed, k.scanned, e.first
FROM kept AS k LEFT JOIN (SELECT queue, min(seq) AS first FROM event GROUP BY queue) AS e
    ON e.queue = k.queue
WHERE max(k.trimmed, k.scanned) > :fold OR e.first <= k.scanned

-- name: wrong_marks
SELECT name, seq FROM mark WHERE name NOT IN ('fold', 'span', 'daybook', 'copied') OR seq < 0

-- name: hasty_marks
-- Spans are listed by a fold, of what is folded.
SELECT s.name, s.seq, f.seq FROM mark AS s JOIN mark AS f ON f.name = 'fold'
WHERE s.name = 'span' AND s.seq > f.seq

-- name: wrong_workers
SELECT queue || ' ' || name, leases FROM worker WHERE leases < 0

-- name: wrong_records
SELECT kind || ' ' || key, version FROM record WHERE version < 1 OR kind = '' OR key = ''

-- name: wrong_clocks
SELECT one FROM clock WHERE boot_id = ''
