#!/bin/sh
# Makes the roles of the database, once, when the server's volume is empty (/docker-entrypoint-initdb.d).
#
#   ingest_owner   owns the schema: `ingest migrate`, and nothing else, runs as it
#   ingest         what workers and commands run as; `ingest migrate --runtime-role ingest` grants it the tables it needs
set -eu

psql --set ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\set owner_password `cat /run/secrets/postgres_owner_password`
\set password `cat /run/secrets/postgres_password`

CREATE ROLE ingest_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE ingest LOGIN PASSWORD :'password';

-- Nobody else gets in, and only the owner creates anything.
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO ingest_owner, ingest;
ALTER SCHEMA public OWNER TO ingest_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
SQL
