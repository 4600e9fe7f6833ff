-- The outbox that the app face stands in for, as its own document prints it: the
-- indexes and the two statements verbatim, the table as its columns are used.
create schema app;
create table public.outbox (
  id               uuid        primary key default gen_random_uuid(),
  tenant_id        uuid,
  topic            text        not null,
  payload          jsonb       not null,
  created_at       timestamptz not null default now(),
  delivered_at     timestamptz,
  processing_token uuid,
  attempts         int         not null default 0
);

-- Fast claiming (partial index on undelivered, unclaimed rows)
CREATE INDEX idx_outbox_claimable
  ON public.outbox (delivered_at, created_at)
  WHERE delivered_at IS NULL AND processing_token IS NULL;

-- Fast claim ownership checks
CREATE INDEX idx_outbox_token
  ON public.outbox (processing_token)
  WHERE processing_token IS NOT NULL;

create function app.outbox_claim(p_limit int, p_token uuid, p_tenant uuid) returns setof public.outbox
language sql as $$
WITH to_claim AS (
  SELECT id
  FROM public.outbox
  WHERE delivered_at IS NULL
    AND processing_token IS NULL
    AND (p_tenant IS NULL OR tenant_id = p_tenant)
  ORDER BY created_at ASC
  LIMIT p_limit
  FOR UPDATE SKIP LOCKED  -- Key for concurrency safety
)
UPDATE public.outbox o
   SET processing_token = p_token
  FROM to_claim c
 WHERE o.id = c.id
 RETURNING o.*;
$$;

create function app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) returns int
language sql as $$
UPDATE public.outbox o
   SET delivered_at = NOW(),
       attempts = COALESCE(o.attempts, 0) + 1,
       processing_token = NULL
 WHERE o.id = ANY(p_ids)
   AND o.processing_token = p_token;

SELECT COUNT(*)::int FROM public.outbox
 WHERE id = ANY(p_ids) AND delivered_at IS NOT NULL;
$$;
