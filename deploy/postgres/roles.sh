#!/bin/sh
# Creates the database roles, once, when the server's volume is empty (/docker-entrypoint-initdb.d).
#
#   ingest_owner   owns the schema; used by `ingest migrate` only
#   ingest         used by workers and commands; `ingest migrate --runtime-role ingest` grants it the tables it needs
set -eu

psql --set ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\set owner_password `cat /run/secrets/postgres_owner_password`
\set password `cat /run/secrets/postgres_password`

CREATE ROLE ingest_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE ingest LOGIN PASSWORD :'password';

-- No other role can connect, and only the owner can create objects.
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO ingest_owner, ingest;
ALTER SCHEMA public OWNER TO ingest_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
SQL
