-- breaking: no
-- Apart from 0128, whose locks nobody can write beside: this reads each table once, and keeps nobody from it.
alter table deed.channel_outbox validate constraint channel_outbox_purpose_is_named;
alter table deed.runs validate constraint runs_names_are_short;
