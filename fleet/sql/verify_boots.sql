-- Boots of a host that begin before another boot of the same host has ended.
WITH boots AS (
  SELECT host_id, boot_id, MIN(start_time) AS first_start,
         MAX(CAST(start_time AS BIGINT) + COALESCE(duration_ns, 0) / 1000) AS last_end_us
  FROM recording
  WHERE boot_id IS NOT NULL AND host_id IS NOT NULL
  GROUP BY host_id, boot_id)
SELECT a.host_id, a.boot_id, b.boot_id AS other_boot_id, b.first_start AS other_start
FROM boots a JOIN boots b ON a.host_id = b.host_id AND a.boot_id <> b.boot_id
WHERE a.first_start <= b.first_start AND CAST(b.first_start AS BIGINT) < a.last_end_us
ORDER BY a.host_id, b.first_start, a.boot_id
