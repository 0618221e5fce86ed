-- Recordings that are in the lake more than once.
SELECT recording_id, COUNT(*) AS times
FROM recording
GROUP BY recording_id
HAVING COUNT(*) > 1
