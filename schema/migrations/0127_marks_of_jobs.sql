-- breaking: no
-- deed.roll_up says where its next looks may begin.
drop function if exists deed.roll_up(int, text);
