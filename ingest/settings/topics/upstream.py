"""Settings of requests to the external API, a part of `Settings`.

`ingest.sources.endpoint` checks combinations of them.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator

from ingest.domain.fetch.request_headers import check_header_name, check_secret, check_token, parse_headers
from ingest.domain.fetch.status_overrides import parse_status_overrides
from ingest.domain.masking import BULK_PLACEHOLDER, PLACEHOLDER
from ingest.settings.types import KeyPart, MemberPath, OnOff, Positive, Seconds, Topic, check_tables, lower, upper
from ingest.settings.urls import require_scheme, require_template


def _client(value: object) -> object:
    """Explain that libcurl is no longer supported if the settings still contain it."""
    if (name := lower(value)) == "curl":
        raise ValueError("curl is no longer supported: leave it at native, which needs less CPU time")
    return name


class UpstreamSettings(Topic):
    """The address of the external API, and the form, the rate and the concurrency of requests.

    Settings with `repr=False` are not secrets. Errors do not show their values, in case a secret is set there by mistake.
    """

    upstream_url: str = Field(
        "http://127.0.0.1:8081/orders/{order_id}", description="URL of the external API, a template with {order_id}"
    )
    upstream_token: SecretStr | None = Field(
        None, description="Bearer token for the external API (with header: the API key)"
    )
    upstream_method: Annotated[Literal["GET", "POST"], BeforeValidator(upper)] = Field(
        "GET", description="Method of requests to the external API: GET or POST"
    )
    upstream_body: SecretStr | None = Field(
        None, description="Body of a POST, a template with {order_id} (JSON unless a header sets another type)"
    )
    upstream_headers: SecretStr | None = Field(
        None, description="Further headers of requests, as lines `Name: value` or a JSON object"
    )
    upstream_auth: Annotated[Literal["none", "bearer", "basic", "header", "oauth2"], BeforeValidator(lower)] = Field(
        "none",
        repr=False,
        description="Credential of requests: none (bearer if a token is set), bearer, basic, header or oauth2",
    )
    upstream_auth_header: str | None = Field(
        None,
        repr=False,
        description="Name of the header for the token (default: X-Api-Key with header, Authorization with oauth2)",
    )
    upstream_user: SecretStr | None = Field(None, description="With basic: the user")
    upstream_password: SecretStr | None = Field(None, description="With basic: the password")
    upstream_oauth2_url: str | None = Field(None, description="With oauth2: URL of the token endpoint")
    upstream_oauth2_grant: Annotated[Literal["client_credentials", "refresh_token"], BeforeValidator(lower)] = Field(
        "client_credentials", repr=False, description="With oauth2: the grant, client_credentials or refresh_token"
    )
    upstream_oauth2_client_id: SecretStr | None = Field(None, description="With oauth2: the client ID")
    upstream_oauth2_client_secret: SecretStr | None = Field(None, description="With oauth2: the client secret")
    upstream_oauth2_refresh_token: SecretStr | None = Field(
        None, description="With the grant refresh_token: the refresh token"
    )
    upstream_oauth2_refresh_store: str | None = Field(
        None,
        description="With the grant refresh_token: where all processes share tokens, postgresql or the path of a file",
    )
    upstream_oauth2_store_key: SecretStr | None = Field(
        None, description="Key that encrypts the shared tokens: 32 bytes in base64, or several keys in lines"
    )
    upstream_oauth2_client_auth: Annotated[Literal["basic", "body"], BeforeValidator(lower)] = Field(
        "basic",
        repr=False,
        description="With oauth2: location of the client ID and secret in the token request, basic (a header) or body",
    )
    upstream_oauth2_scope: str | None = Field(None, description="With oauth2: the scope to request")
    upstream_oauth2_parameters: SecretStr | None = Field(
        None, description="With oauth2: further parameters of the token request, such as audience=https://shop.example"
    )
    upstream_ca_file: str | None = Field(
        None, description="PEM file of the authorities to trust for the external API, instead of the system's"
    )
    upstream_cert_file: str | None = Field(None, description="PEM file of the client certificate for the external API")
    upstream_key_file: str | None = Field(
        None, description="PEM file of its private key, unless the certificate's file contains it"
    )
    upstream_status: str | None = Field(
        None,
        description="Meaning of statuses: 404=retry:1h, 409=retry, 451=not_found, 423=throttled:30s, 402=credential",
    )
    responses: Annotated[str, AfterValidator(check_tables)] | None = Field(
        None,
        repr=False,
        description='Rules for the meaning of responses, a JSON array: [{"status": 202, "meaning": "retry", "delay": 30}]',
    )
    upstream_connect_timeout: Seconds = Field(5.0, description="Time limit for connecting to the external API")
    upstream_read_timeout: Seconds = Field(15.0, description="Longest pause within a response of the external API")
    upstream_timeout: Seconds = Field(30.0, description="Time limit for one request to the external API, in total")
    upstream_tries: Positive = Field(3, description="Immediate tries of a request within one attempt")
    upstream_body_limit: Positive = Field(4 * 1024 * 1024, description="Maximum size of an order document, in bytes")
    upstream_client: Annotated[Literal["native", "aiohttp"], BeforeValidator(_client)] = Field(
        "native",
        description="HTTP client for the external API: native, or aiohttp (needs more CPU time)",
    )
    upstream_bulk_url: str = Field(
        "",
        description="URL of the list endpoint of the external API, a template with {order_ids} (empty: one request for each order)",
    )
    upstream_bulk_size: Annotated[int, Field(gt=0, le=1_000)] = Field(
        50, description="Maximum number of orders in one request to INGEST_UPSTREAM_BULK_URL"
    )
    upstream_bulk_path: MemberPath | Literal[""] = Field(
        "",
        description="Path of the list in the response, such as data.orders (default: the response itself, or its only list)",
    )
    upstream_bulk_id: MemberPath = Field("id", description="Path of the order ID in each document of that list")

    upstream_adaptive: OnOff = Field(
        "off",
        description="on: adapt the concurrency to the external API's capacity, within INGEST_CONCURRENCY",
    )
    upstream_rate: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0, description="Requests per second to the external API over all processes (0: unlimited)"
    )
    upstream_cost: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0,
        description="Points of one request, if the rate and the burst count points, as in GraphQL (0: they count requests)",
    )
    upstream_burst: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Requests that may be sent together after a pause (0: the requests of 10 ms)",
    )
    upstream_rate_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] | None = Field(
        None,
        description="Header of responses with the requests per second that the external API permits. A lower rate than the configured one applies",
    )
    upstream_concurrency: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Concurrent requests to the external API over all processes (0: unlimited)"
    )
    upstream_quota: KeyPart | None = Field(
        None, description="Name of the quota, for services that share one (default: the host of the external API)"
    )

    @field_validator("upstream_token")
    @classmethod
    def _token(cls, value: SecretStr | None) -> SecretStr | None:
        return SecretStr(check_token(value.get_secret_value())) if value is not None else None

    @field_validator("upstream_headers")
    @classmethod
    def _headers(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_headers(value.get_secret_value())
        return value

    @field_validator("upstream_auth_header")
    @classmethod
    def _header(cls, value: str | None) -> str | None:
        return check_header_name(value) if value is not None else None

    @field_validator(
        "upstream_user",
        "upstream_password",
        "upstream_oauth2_client_id",
        "upstream_oauth2_client_secret",
        "upstream_oauth2_refresh_token",
    )
    @classmethod
    def _secret(cls, value: SecretStr | None) -> SecretStr | None:
        return SecretStr(check_secret(value.get_secret_value())) if value is not None else None

    @field_validator("upstream_user")
    @classmethod
    def _user(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and ":" in value.get_secret_value():
            raise ValueError("contains a colon, which ends the user name in HTTP Basic")
        return value

    @field_validator("upstream_oauth2_url")
    @classmethod
    def _token_url(cls, value: str | None) -> str | None:
        if value is not None:
            require_scheme(value, ("https", "http"), "https://login.example/oauth2/token")
            if not urlsplit(value).hostname or "@" in value or "#" in value:
                raise ValueError("must contain a host and no user, such as https://login.example/oauth2/token")
        return value

    @field_validator("upstream_status")
    @classmethod
    def _statuses(cls, value: str | None) -> str | None:
        parse_status_overrides(value or "")
        return value

    @field_validator("upstream_url")
    @classmethod
    def _upstream_template(cls, value: str) -> str:
        require_template(value, PLACEHOLDER, "https://shop.example/orders/{order_id}")
        return value

    @field_validator("upstream_bulk_url")
    @classmethod
    def _upstream_bulk_template(cls, value: str) -> str:
        example = "https://shop.example/orders?ids={order_ids}"
        if value and (BULK_PLACEHOLDER not in value or PLACEHOLDER in value):
            raise ValueError(f"must contain {{order_ids}} exactly once, and no {{order_id}}, such as {example}")
        if value:
            require_template(value, BULK_PLACEHOLDER, example)
        return value
