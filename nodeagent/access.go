package nodeagent

import (
	"errors"

	"go.uber.org/zap"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
)

// admitsAlone returns why nobody could use the HTTPS API of a node that has no API
// server to ask; nil if somebody can. The error names every field that is in the
// way; NodeAPI logs it and goes without HTTPS.
func admitsAlone(c *kubeletconfig.Config) error {
	var errs []error
	if m := c.Authorization.Mode; m == v1beta1.KubeletAuthorizationModeWebhook {
		errs = append(errs, errors.New("authorization.mode: Webhook takes an API server; want AlwaysAllow without --kubeconfig"))
	}
	// Tokens cannot be asked about, so that certificates and anonymous access
	// remain.
	if c.Authentication.X509.ClientCAFile == "" && !*c.Authentication.Anonymous.Enabled {
		errs = append(errs, errors.New("authentication: nobody could say who they are without an API server; want x509.clientCAFile, or anonymous.enabled: true"))
	}
	return errors.Join(errs...)
}

// access is who may use the API over HTTPS. Without a reviewer, tokens say nothing,
// and the configuration has passed admitsAlone. reviewer is nil without a cluster.
func access(c *kubeletconfig.Config, certs *server.Certs, reviewer Reviewer, log *zap.Logger) (auth.Authenticator, auth.Authorizer) {
	// Certificates come first: they need no call to a server.
	who := []auth.Authenticator{auth.ClientCerts(certs.ClientCAs)}
	if *c.Authentication.Webhook.Enabled {
		if reviewer != nil {
			who = append(who, auth.Tokens(auth.TokensConfig{TTL: c.Authentication.Webhook.CacheTTL.Duration, Reviewer: reviewer}))
		} else {
			log.Warn("authentication.webhook has no effect without an API server: nobody is known by a token")
		}
	}
	authn := auth.FirstOf(who...)
	// It takes whoever the others do not know, and so comes last.
	if *c.Authentication.Anonymous.Enabled {
		authn = auth.Anonymous(authn)
	}
	if c.Authorization.Mode != v1beta1.KubeletAuthorizationModeWebhook {
		if *c.Authentication.Anonymous.Enabled {
			// The defaults of the kubelet's flags amount to this, which is why it
			// is no error.
			log.Warn("everybody who reaches the node's port may run commands in its containers", zap.Int32("port", c.Port))
		}
		return authn, auth.AlwaysAllow()
	}
	w := c.Authorization.Webhook
	return authn, auth.Access(auth.AccessConfig{
		Reviewer: reviewer, AllowTTL: w.CacheAuthorizedTTL.Duration, DenyTTL: w.CacheUnauthorizedTTL.Duration,
	})
}
