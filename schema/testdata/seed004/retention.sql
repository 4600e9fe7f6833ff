DELETE FROM public.outbox
WHERE delivered_at IS NOT NULL
  AND delivered_at < NOW() - INTERVAL '7 days';
