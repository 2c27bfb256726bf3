"""How a client authenticates: the security options become a TLS context and a SASL login for each connection.

    security.py            from a SecurityConfig to TLS contexts and a login; keeps tokens and tickets of the process
       |  oauth.py         OAUTHBEARER tokens, of an endpoint or of the user's callable
       |  msk_iam.py       AWS_MSK_IAM tokens, signed by botocore
       |  kerberos.py      GSSAPI by the system's library; kerberos_failures.py: what its statuses mean
    jaas.py                reads `sasl.jaas.config`, and imports nothing of the others

A process imports the module of its mechanism alone. `kafka/protocol/sasl.py` has the exchanges.
"""
