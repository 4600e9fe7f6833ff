-- breaking: no
-- What writing through the faces needs: of two that delete one message the second
-- waits here for the first, and an adopted table's topics may get other names.

alter table deed.purges add constraint purges_pkey primary key (id);

-- The new names of topics, by the old ones, while a table is being adopted.
alter table deed.contracts add column adopting_topics jsonb;
