-- Status must be valid
ALTER TABLE channel_outbox 
ADD CONSTRAINT channel_outbox_status_check 
CHECK (status IN ('queued', 'sent', 'called', 'posted', 'failed', 'skipped'));

-- Skipped flag must match status
ALTER TABLE channel_outbox 
ADD CONSTRAINT channel_outbox_skipped_status_check 
CHECK (skipped = false OR status = 'skipped');

-- Idempotency key required (already NOT NULL)
-- Unique constraint on (tenant_id, workspace_id, idempotency_key) (already exists)

-- Index for run detail queries
CREATE INDEX IF NOT EXISTS idx_channel_outbox_run_id ON channel_outbox(run_id);
