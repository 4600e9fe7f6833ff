-- Who may use the app face.
revoke all on function app.outbox_claim, app.outbox_mark_delivered, app.outbox_written from public;
grant usage on schema app to deed_app, deed_worker, deed_admin;
grant execute on function app.outbox_claim, app.outbox_mark_delivered to deed_worker;
-- UPDATE is granted so that it is refused with a reason; to the application by
-- columns, for who may update a relation may LOCK it in any mode.
revoke update on public.outbox from deed_app;
grant update (id, tenant_id, topic, payload, created_at, delivered_at, processing_token, attempts) on public.outbox to deed_app;
grant select, insert on public.outbox to deed_app;
grant select, insert, update, delete on public.outbox to deed_worker, deed_admin;
