package podruntime

import "crypto/tls"

// insecureTLS returns a configuration that trusts every certificate: the node has no CA for
// certificates of pods, and the answer of a hook is not used.
func insecureTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
}
