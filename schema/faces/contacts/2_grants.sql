-- Who may use the contacts face. UPDATE and DELETE are granted so that they are refused
-- with a reason; to the application by columns, as for public.outbox.
revoke update on public.contact_identities from deed_app;
grant update (tenant_id, contact_id, type, value, verified_at, created_at) on public.contact_identities to deed_app;
grant select, insert on public.contact_identities to deed_app;
grant select, insert, update, delete on public.contact_identities to deed_worker, deed_admin;
