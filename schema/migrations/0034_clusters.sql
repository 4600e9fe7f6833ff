-- breaking: no
-- Which server, database and environment this installation belongs to: what
-- sends holds on any other until somebody says so (deed.held, deed.adopt_cluster).
-- The first process that starts writes it down (deed.start_here).
alter table deed.settings
  add column system_identifier bigint,
  add column database_oid      bigint,
  add column environment       text,
  add constraint settings_cluster_is_whole check ((system_identifier is null) = (database_oid is null)),
  add constraint settings_environment_is_short check (length(environment) between 1 and 100);

-- Where it belongs is changed by deed.adopt_cluster, and on record.
revoke update on deed.settings from deed_admin;
grant update (strict_topics, max_payload, dedup_window, retention, max_delivery) on deed.settings to deed_admin;
