-- breaking: no
-- Topics of deed's own, to which its functions alone publish. A topic that somebody had
-- declared under such a name stays theirs.
alter table deed.topics add column own boolean not null default false;

-- What providers say later of deliveries (deed.tell_feedback).
insert into deed.topics (topic, slot_base, mode, list_version, own)
select 'deed.feedback', 64 * nextval('deed.topic_seq')::int, 'stream', s.list_version, true
from deed.settings s
on conflict (topic) do nothing;
