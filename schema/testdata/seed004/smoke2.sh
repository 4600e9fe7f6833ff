# Terminal 1
psql -c "SELECT id FROM app.outbox_claim(5, '11111111-1111-1111-1111-111111111111', null);"

# Terminal 2 (immediately after)
psql -c "SELECT id FROM app.outbox_claim(5, '22222222-2222-2222-2222-222222222222', null);"

# Verify: No ID overlap between results
