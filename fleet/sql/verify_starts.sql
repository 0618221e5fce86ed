-- Recordings of a host with the same start.
SELECT host_id, start_time, COUNT(*) AS times
FROM recording
WHERE host_id IS NOT NULL AND start_time IS NOT NULL
GROUP BY host_id, start_time
HAVING COUNT(*) > 1
