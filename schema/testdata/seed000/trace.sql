-- Full execution trace
SELECT 
  cr.id as run_id, cr.status as run_status,
  jq.id as job_id, jq.status as job_status, jq.attempts,
  co.id as outbox_id, co.status as outbox_status, co.provider_message_id
FROM campaign_runs cr
JOIN job_queue jq ON jq.run_id = cr.id
LEFT JOIN channel_outbox co ON co.run_id = cr.id
WHERE cr.campaign_id = 'CAMPAIGN_UUID'
ORDER BY cr.created_at DESC, jq.created_at, co.created_at;
