-- What the migrations themselves need: the schema, and the record of what has been
-- applied.
create schema if not exists deed;

create table if not exists deed.migrations (
  version    int         not null,
  name       text        not null,
  breaking   boolean     not null,
  hash       text        not null,
  applied_at timestamptz not null default clock_timestamp(),
  constraint migrations_pkey primary key (version)
);

grant select on deed.migrations to deed_app, deed_worker, deed_admin;
grant usage on schema deed to deed_app, deed_worker, deed_admin;
