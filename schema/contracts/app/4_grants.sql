-- Who may use the app face.
revoke all on function app.outbox_claim, app.outbox_mark_delivered, app.outbox_written from public;
grant usage on schema app to deed_app, deed_worker, deed_admin;
grant execute on function app.outbox_claim, app.outbox_mark_delivered to deed_worker;
-- UPDATE is granted so that it is refused with a reason.
grant select, insert, update on public.outbox to deed_app, deed_worker, deed_admin;
grant delete on public.outbox to deed_worker, deed_admin;
