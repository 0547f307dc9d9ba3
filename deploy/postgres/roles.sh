#!/bin/sh
# Creates the database roles, once, when the server's volume is empty (/docker-entrypoint-initdb.d).
#
#   ingest_owner   owns the schema; used by `ingest migrate` only
#   ingest         used by workers and commands; `ingest migrate --runtime-role ingest` grants it the tables it needs
#   ingest_api     used by the HTTP API; `ingest migrate --api-role ingest_api` grants it what it needs
set -eu

psql --set ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\set owner_password `cat /run/secrets/postgres_owner_password`
\set password `cat /run/secrets/postgres_password`
\set api_password `cat /run/secrets/postgres_api_password`

CREATE ROLE ingest_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE ingest LOGIN PASSWORD :'password';
CREATE ROLE ingest_api LOGIN PASSWORD :'api_password';

-- No other role can connect, and only the owner can create objects.
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO ingest_owner, ingest, ingest_api;
ALTER SCHEMA public OWNER TO ingest_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
SQL
