-- breaking: no
-- deed.status takes how many topics it lists; older programs call it without.
drop function if exists deed.status();
