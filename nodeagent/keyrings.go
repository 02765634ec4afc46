package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// keyrings returns the node's own credentials for images: docker's configuration file in the root
// directory and of this user, as in the kubelet, and the credential provider plugins, in this
// order. A missing file is not an error, since it may be created later.
func (b *Builder) keyrings() ([]images.Keyring, error) {
	c := b.Config
	rings := []images.Keyring{images.NewFile(filepath.Join(c.RootDir, "config.json"))}
	if home := os.Getenv("HOME"); home != "" {
		rings = append(rings, images.NewFile(filepath.Join(home, ".docker", "config.json")))
	}
	if c.CredentialProviderConfig == "" {
		return rings, nil
	}
	ring, err := b.providers()
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config=%q: %w", c.CredentialProviderConfig, err)
	}
	return append(rings, ring), nil
}

// providers returns the plugins of a CredentialProviderConfig. It returns an error if a provider
// cannot be used on this node, so that this is found at the start and not at the first pull.
func (b *Builder) providers() (*images.Plugins, error) {
	conf, err := kubeletconfig.LoadCredentialProviders(b.Config.CredentialProviderConfig)
	if err != nil {
		return nil, err
	}
	cfg := images.PluginsConfig{Dir: b.Config.CredentialProviderDir, Hash: conf.Hash, Metrics: b.Metrics}
	// Both are needed: a token, and the annotations for a provider.
	if cl := b.Cluster; cl != nil && cl.Tokens != nil && cl.ServiceAccount != nil {
		cfg.Accounts = accounts{cl}
	}
	for _, p := range conf.Providers {
		plugin := images.Plugin{Name: p.Name, Match: p.MatchImages, Args: p.Args, CacheDuration: p.DefaultCacheDuration.Duration, APIVersion: p.APIVersion}
		for _, e := range p.Env {
			plugin.Env = append(plugin.Env, e.Name+"="+e.Value)
		}
		if t := p.TokenAttributes; t != nil {
			// A provider with optional tokens works without them.
			if cfg.Accounts == nil && *t.RequireServiceAccount {
				return nil, fmt.Errorf("provider %q: tokenAttributes.requireServiceAccount: service account tokens need an API server; remove the provider", p.Name)
			}
			if on, set := b.Config.FeatureGates[gateProviderTokens]; set && !on {
				return nil, fmt.Errorf("provider %q: tokenAttributes: the feature gate %s is off; want it on", p.Name, gateProviderTokens)
			}
			plugin.Token = &images.PluginToken{
				Audience: t.ServiceAccountTokenAudience, ByAccount: t.CacheType == "ServiceAccount", Required: *t.RequireServiceAccount,
				RequiredAnnotations: t.RequiredServiceAccountAnnotationKeys, OptionalAnnotations: t.OptionalServiceAccountAnnotationKeys,
			}
		}
		cfg.Plugins = append(cfg.Plugins, plugin)
	}
	return images.NewPlugins(cfg)
}

// gateProviderTokens is the kubelet's gate of tokens for credential providers.
const gateProviderTokens = "KubeletServiceAccountTokenForCredentialProviders"

// accounts are a cluster's service accounts, as credential providers need them.
type accounts struct{ cl *Cluster }

// accountTimeout limits one request about a service account, since a pull waits for it.
const accountTimeout = 10 * time.Second

// Account implements images.Accounts. It calls the API server, and blocks for
// accountTimeout at most.
func (a accounts) Account(ctx context.Context, namespace, name string) (images.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	sa, err := a.cl.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return images.Account{}, err
	}
	return images.Account{UID: string(sa.UID), Annotations: sa.Annotations}, nil
}

// Token implements images.Accounts. The token is bound to the pod, so that it is
// invalid once the pod is deleted. It blocks for accountTimeout at most.
func (a accounts) Token(ctx context.Context, pod *v1.Pod, audience string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	t, err := a.cl.Tokens.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, authv1.TokenRequestSpec{
		Audiences:      []string{audience},
		BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	})
	if err != nil {
		return "", err
	}
	if t.Value == "" {
		return "", errors.New("the API server returned an empty token")
	}
	return t.Value, nil
}
