-- Claim rows
SELECT id FROM app.outbox_claim(5, 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa', null);

-- Try to finalize with wrong token
SELECT app.outbox_mark_delivered('bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb', 
  ARRAY(SELECT id FROM outbox WHERE processing_token = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa')
);
-- Expected: 0 rows delivered (token mismatch)

-- Finalize with correct token
SELECT app.outbox_mark_delivered('aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa', 
  ARRAY(SELECT id FROM outbox WHERE processing_token = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa')
);
-- Expected: N rows delivered
