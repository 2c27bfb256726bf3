"""TLS, SASL, and secrets that are shown to nobody."""

from __future__ import annotations

from mutants.mutant import Mutant

SECURITY: tuple[Mutant, ...] = (
    Mutant(
        name="a broker's certificate may be for any host",
        rule="docs/security.md: host names are verified",
        pattern="$SETTINGS.verify_host_name",
        replacement="False",
        killer="tests/unit/kafka/net/test_tls.py::test_a_broker_that_is_not_verified_hears_nothing",
    ),
    Mutant(
        name="peers: a certificate is taken for its common name",
        rule="docs/security.md: host names are verified",
        pattern="$CONTEXT.sslsocket_class = $NAMED_PEER",
        replacement="pass",
        killer="tests/unit/kafka/net/test_tls.py::test_a_broker_that_is_not_verified_hears_nothing",
    ),
    Mutant(
        name="a private key is left behind in a file",
        rule="no secret is shown",
        pattern="Path($PATH).unlink()",
        replacement="pass",
        killer="tests/unit/kafka/net/test_tls.py::test_no_private_key_is_left_in_a_file",
    ),
    Mutant(
        name="a renewed certificate waits for the next worker",
        rule="docs/security.md: certificates that are replaced are loaded again",
        pattern="$FILES != self.$FILES_2",
        replacement="False",
        within="current",
        killer="tests/unit/kafka/net/test_tls.py::test_a_renewed_certificate_goes_with_the_next_connection",
    ),
    Mutant(
        name="a JKS store may have been changed",
        rule="docs/security.md: with a password the digest of a JKS store is verified",
        pattern="not hmac.compare_digest($EXPECTED, $DIGEST)",
        replacement="False",
        within="read_jks",
        killer="tests/unit/kafka/net/test_jks.py::test_a_store_that_was_changed_is_noticed",
    ),
    Mutant(
        name="a PKCS12 store may ask for any number of iterations",
        rule="docs/security.md: at most 5,000,000 iterations",
        pattern="$ASKED > MAX_ITERATIONS",
        replacement="False",
        killer="tests/unit/kafka/net/test_stores.py::test_a_hostile_number_of_iterations_is_refused_before_they_are_computed",
    ),
    Mutant(
        name="a password with a zero is printed by a panic",
        rule="no secret is shown",
        pattern='$PASSWORD is not None and "\\0" in $PASSWORD',
        replacement="False",
        killer="tests/unit/kafka/net/test_pkcs12.py::test_any_text_as_a_password",
    ),
    Mutant(
        name="requests go out before the connection is authenticated",
        rule="SaslClientAuthenticator",
        pattern="self.$AUTHENTICATION is None",
        replacement="True",
        within="Connection",
        killer="tests/unit/kafka/protocol/test_connection.py::TestAuthentication::test_nothing_else_goes_out_before",
    ),
    Mutant(
        name="a broker need not know the password",
        rule="RFC 5802: the server signature",
        pattern="not hmac.compare_digest(self.$DECODED($MATCH[1]), self.$SERVER_SIGNATURE)",
        replacement="False",
        killer="tests/unit/kafka/protocol/test_sasl.py::test_a_broker_that_does_not_know_the_password",
    ),
    Mutant(
        name="a broker may ask for one iteration",
        rule="ScramMechanism.minIterations",
        pattern="MIN_ITERATIONS <= $ITERATIONS <= MAX_ITERATIONS",
        replacement="$ITERATIONS <= MAX_ITERATIONS",
        killer="tests/unit/kafka/protocol/test_sasl.py::test_a_first_message_that_is_refused_before_anything_is_computed",
    ),
    Mutant(
        name="a broker's words are shown with the password in them",
        rule="no secret is shown",
        pattern='$SHOWN = $SHOWN.replace($SECRET, "...")',
        replacement="pass",
        within="shown",
        killer="tests/unit/kafka/protocol/test_connection.py::TestAuthentication::test_a_password_that_is_wrong_is_not_shown",
    ),
    Mutant(
        name="a session is let end",
        rule="KIP-368: connections authenticate again",
        pattern="$NODE.session_until_ms is not None and $NOW_MS >= $NODE.session_until_ms",
        replacement="False",
        killer="tests/unit/kafka/net/test_network_client.py::TestSessions::test_are_begun_anew_in_time_and_lose_nothing",
    ),
    Mutant(
        name="passwords go over connections that anybody can read",
        rule="no secret is shown",
        pattern='$VALUES["allow_plaintext_credentials"]',
        replacement="True",
        killer="tests/unit/options/test_config.py::test_security_options_that_contradict_each_other",
    ),
    Mutant(
        name="an extension may take the token's place",
        rule="KIP-342: SASL extensions",
        pattern="if $NAME == $RESERVED:\n"
        "    raise JaasProblem(f\"{$SHOWN} is the token's own place and cannot be an extension; "
        'remove it")',
        replacement="if False:\n"
        "    raise JaasProblem(f\"{$SHOWN} is the token's own place and cannot be an extension; "
        'remove it")',
        killer="tests/unit/kafka/test_jaas.py::test_what_cannot_be_used_is_said_without_showing_it",
    ),
    Mutant(
        name="security: options of TLS or SASL without a protocol go out in plaintext",
        rule="docs/security.md: the protocol must be named",
        pattern='"security_protocol" in $GIVEN or not $SAID',
        replacement="True",
        killer="tests/unit/options/test_config.py::test_options_of_tls_or_sasl_without_a_protocol_never_send_plaintext",
    ),
    Mutant(
        name="security: nobody hears that host names are not verified",
        rule="docs/security.md: an empty endpoint identification algorithm warns",
        pattern="not $SECURITY.is_encrypted or $SECURITY.ssl_endpoint_identification_algorithm",
        replacement="True",
        killer="tests/unit/options/test_config.py::test_what_protects_less_than_it_could_is_logged_once",
    ),
    Mutant(
        name="security: an error shows a value as it is",
        rule="docs/security.md: errors show no secret",
        pattern="None if $VALUE is None else redacted($VALUE)",
        replacement="$VALUE",
        killer="tests/unit/test_secrets.py::test_a_secret_in_any_option_is_shown_by_no_error_report_or_configuration",
    ),
    Mutant(
        name="security: a reason shows a path with keys in it",
        rule="docs/security.md: errors show no secret",
        pattern="if redacted($VALUE) != $VALUE:\n    return type($ERROR).__name__",
        replacement="pass",
        killer="tests/unit/test_secrets.py::test_a_reason_that_quotes_a_part_of_the_value_is_not_shown",
    ),
    Mutant(
        name="security: a user and a password are taken for a host, and sent to name servers",
        rule="docs/security.md: errors show no secret",
        pattern="$MATCH is None or not $IS_HOST($MATCH[1]) or not 0 < int($MATCH[2]) < 65536",
        replacement="$MATCH is None or not 0 < int($MATCH[2]) < 65536",
        killer="tests/unit/test_secrets.py::test_a_secret_in_any_option_is_shown_by_no_error_report_or_configuration",
    ),
    Mutant(
        name="security: a module of the working directory is run to compile a .proto text",
        rule="docs/schema-registry.md: no module of the working directory is run",
        pattern="[$PLACE for $PLACE in sys.path if $PLACE and os.path.abspath($PLACE) != $HERE]",
        replacement="sys.path",
        killer="tests/unit/registry/test_proto_text.py::test_no_module_of_the_working_directory_is_run",
    ),
    Mutant(
        name="registry: any number is taken for a schema's id",
        rule="docs/schema-registry.md: answers are bounded",
        pattern="isinstance($VALUE, int) and not isinstance($VALUE, bool) and $LEAST <= $VALUE <= INT32_MAX",
        replacement="isinstance($VALUE, int)",
        killer="tests/unit/registry/test_registering.py::test_an_id_that_fits_the_frame_is_taken_and_no_other",
    ),
    Mutant(
        name="registry: an answer has no bound",
        rule="docs/schema-registry.md: answers are bounded",
        pattern="$SIZE_BYTES > MAX_ANSWER_BYTES",
        replacement="False",
        killer="tests/unit/registry/test_registering.py::"
        "test_an_answer_that_cannot_be_used_is_an_error_with_its_reason",
    ),
    Mutant(
        name="security: a forged file has any process of the user stopped",
        rule="docs/quick-start.md: broker stop ends only a process that holds the lock",
        pattern="$PID > 1 and is_running($RUNNING.owner) and $HOLDS_LOCK($PID, $DIRECTORY / LOCK_FILE, $FACTS.st_uid)",
        replacement="$PID > 1 and is_running($RUNNING.owner)",
        killer="tests/unit/broker/test_state.py::test_a_forged_file_makes_nobody_stop_a_process_that_holds_no_lock",
    ),
    Mutant(
        name="security: a broker may ask for a layer that Kafka does not have",
        rule="RFC 4752: the client chooses from the layers of the offer",
        pattern="not $OFFER[0] & _NO_LAYER",
        replacement="False",
        killer="tests/unit/kafka/protocol/test_gssapi.py::test_an_offer_that_cannot_be_taken_ends_the_exchange",
    ),
    Mutant(
        name="security: a broker keeps a Kerberos exchange going for ever",
        rule="docs/security.md: each step has one deadline",
        pattern="self.$STEPS == MAX_STEPS",
        replacement="False",
        killer="tests/unit/kafka/protocol/test_gssapi.py::test_a_broker_that_goes_on_without_end_or_sense_is_refused",
    ),
    Mutant(
        name="security: a KDC that is away ends the producer",
        rule="docs/security.md: a write tries again",
        pattern='SaslRefused(mechanism="GSSAPI", user=self.$USER, reason=$F.reason, remedy=$F.remedy, '
        "is_final=$F.is_final)",
        replacement='SaslRefused(mechanism="GSSAPI", user=self.$USER, reason=$F.reason, remedy=$F.remedy)',
        killer="tests/unit/kafka/test_kerberos.py::"
        "test_why_an_expired_ticket_of_a_keytab_is_not_replaced_is_found_in_an_empty_cache",
    ),
    Mutant(
        name="security: a keytab's ticket goes into the user's own cache",
        rule="docs/security.md: no ticket cache of yours is written",
        pattern='{"client_keytab": $KEYTAB, "ccache": self.$MEMORY}',
        replacement='{"client_keytab": $KEYTAB}',
        killer="tests/unit/kafka/test_kerberos.py::test_connections_share_the_tickets_of_a_keytab_in_memory",
    ),
    Mutant(
        name="security: why an expired ticket was not replaced is not asked for",
        rule="docs/errors.md: an error names the step",
        pattern="$ERROR.major != CREDENTIALS_EXPIRED",
        replacement="True",
        killer="tests/unit/kafka/test_kerberos.py::"
        "test_why_an_expired_ticket_of_a_keytab_is_not_replaced_is_found_in_an_empty_cache",
    ),
    Mutant(
        name="msk iam: a token outlives its credentials",
        rule="docs/platforms.md: tokens are valid for 900 s, or less if the credentials expire earlier",
        pattern="MAX_LIFETIME_S if $FOUND.remaining_s is None else $FOUND.remaining_s",
        replacement="MAX_LIFETIME_S",
        killer="tests/unit/kafka/aws/test_chain.py::test_a_token_lives_no_longer_than_its_credentials",
    ),
    Mutant(
        name="msk iam: a log shows what STS answers",
        rule="no secret is shown",
        pattern="return $RECORD.levelno > logging.DEBUG or not _is_ours.get()",
        replacement="return True",
        killer="tests/unit/kafka/aws/test_chain.py::test_what_sts_answers_is_in_no_log",
    ),
    Mutant(
        name="msk iam: each token is of another session of the role",
        rule="docs/platforms.md: the principal must stay",
        pattern="self.$KEPT[$LOGIN, $REGION] = $FOUND",
        replacement="pass",
        within="BotocoreChain",
        killer="tests/unit/kafka/aws/test_chain.py::test_a_principal_stays_the_same_for_the_life_of_a_process",
    ),
)
