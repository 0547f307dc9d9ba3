"""The promises of the client over HTTPS: those that another kind of connection could break."""

import pytest
from test_upstream_client import (
    test_a_fault_that_ends_within_the_immediate_tries_is_not_reported,
    test_a_redirect_is_followed_with_the_token,
    test_an_order_is_returned_byte_for_byte,
    test_consecutive_requests_share_a_connection,
    test_the_orders_own_faults_are_permanent_and_not_tried_again,
    test_transient_faults_are_tried_as_often_as_allowed,
)
from test_upstream_closing import (
    test_a_fetch_that_is_cancelled_at_any_time_does_not_affect_others,
    test_a_pooled_connection_that_the_api_has_closed_is_not_a_fault,
    test_closing_ends_running_requests,
)
from test_upstream_credentials import (
    issuing,
    test_a_token_that_is_refused_is_replaced_once_and_the_request_made_again,
    test_each_kind_of_credential_is_accepted_and_nothing_without_it,
    test_one_token_is_requested_and_shared_by_all_orders,
)
from test_upstream_waiting import test_the_read_timeout_applies_to_a_reused_connection

from ingest.lab.upstream import SimulatedApi

pytestmark = pytest.mark.each_client

__all__ = [
    "issuing",
    "test_a_fault_that_ends_within_the_immediate_tries_is_not_reported",
    "test_a_fetch_that_is_cancelled_at_any_time_does_not_affect_others",
    "test_a_pooled_connection_that_the_api_has_closed_is_not_a_fault",
    "test_a_redirect_is_followed_with_the_token",
    "test_a_token_that_is_refused_is_replaced_once_and_the_request_made_again",
    "test_an_order_is_returned_byte_for_byte",
    "test_closing_ends_running_requests",
    "test_consecutive_requests_share_a_connection",
    "test_each_kind_of_credential_is_accepted_and_nothing_without_it",
    "test_one_token_is_requested_and_shared_by_all_orders",
    "test_the_orders_own_faults_are_permanent_and_not_tried_again",
    "test_the_read_timeout_applies_to_a_reused_connection",
    "test_transient_faults_are_tried_as_often_as_allowed",
]


@pytest.fixture
def api(https_api: SimulatedApi) -> SimulatedApi:
    """These tests' API."""
    return https_api
