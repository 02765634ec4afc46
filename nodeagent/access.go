package nodeagent

import (
	"errors"

	"go.uber.org/zap"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
)

// admitsAlone returns an error if no client could use the HTTPS API of a node without
// an API server. The error names every field that has to be changed. NodeAPI logs it
// and serves no HTTPS.
func admitsAlone(c *kubeletconfig.Config) error {
	var errs []error
	if m := c.Authorization.Mode; m == v1beta1.KubeletAuthorizationModeWebhook {
		errs = append(errs, errors.New("authorization.mode: Webhook needs an API server; want AlwaysAllow without --kubeconfig"))
	}
	// Tokens cannot be reviewed, so that only certificates and anonymous access
	// remain.
	if c.Authentication.X509.ClientCAFile == "" && !*c.Authentication.Anonymous.Enabled {
		errs = append(errs, errors.New("authentication: without an API server no client can authenticate; want x509.clientCAFile, or anonymous.enabled: true"))
	}
	return errors.Join(errs...)
}

// access returns the authentication and authorization of the HTTPS API. reviewer is nil
// on a node without a cluster: tokens are then not accepted, and c must have passed
// admitsAlone.
func access(c *kubeletconfig.Config, certs *server.Certs, reviewer Reviewer, log *zap.Logger) (auth.Authenticator, auth.Authorizer) {
	// Certificates come first: they need no call to a server.
	who := []auth.Authenticator{auth.ClientCerts(certs.ClientCAs)}
	if *c.Authentication.Webhook.Enabled {
		if reviewer != nil {
			who = append(who, auth.Tokens(auth.TokensConfig{TTL: c.Authentication.Webhook.CacheTTL.Duration, Reviewer: reviewer}))
		} else {
			log.Warn("authentication.webhook has no effect without an API server: tokens cannot be reviewed")
		}
	}
	authn := auth.FirstOf(who...)
	// Anonymous access accepts every request, so it comes last.
	if *c.Authentication.Anonymous.Enabled {
		authn = auth.Anonymous(authn)
	}
	if c.Authorization.Mode != v1beta1.KubeletAuthorizationModeWebhook {
		if *c.Authentication.Anonymous.Enabled {
			// The defaults of the kubelet's flags have the same effect, so that it
			// is no error.
			log.Warn("node API is open: every client of its port may run commands in containers", zap.String("address", c.Address), zap.Int32("port", c.Port),
				zap.String("change", "enableServer: false closes the port, and address: 127.0.0.1 keeps it to this machine"))
		}
		return authn, auth.AlwaysAllow()
	}
	w := c.Authorization.Webhook
	return authn, auth.Access(auth.AccessConfig{
		Reviewer: reviewer, AllowTTL: w.CacheAuthorizedTTL.Duration, DenyTTL: w.CacheUnauthorizedTTL.Duration,
	})
}
