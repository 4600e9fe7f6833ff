-- Insert test events out of order
INSERT INTO outbox (topic, payload, created_at)
VALUES 
  ('test', '{"seq": 3}'::jsonb, now() - interval '1 hour'),
  ('test', '{"seq": 1}'::jsonb, now() - interval '3 hours'),
  ('test', '{"seq": 2}'::jsonb, now() - interval '2 hours');

-- Claim should return oldest first
SELECT app.outbox_claim(10, gen_random_uuid(), null);
-- Expected: seq 1, 2, 3 (oldest to newest)
