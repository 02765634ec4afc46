package kubeletconfig

import (
	"flag"
	"net/url"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// masked replaces a possible secret.
const masked = "<masked>"

// Redacted returns a copy of the KubeletConfiguration without possible credentials, to be shown by
// the kubelet's endpoint /configz. It masks HTTP headers, and the password and the query of URLs.
func (c *Config) Redacted() *v1beta1.KubeletConfiguration {
	out := c.KubeletConfiguration.DeepCopy()
	out.APIVersion, out.Kind = apiVersion, kind
	for name := range out.StaticPodURLHeader {
		out.StaticPodURLHeader[name] = []string{masked}
	}
	out.StaticPodURL = withoutPassword(out.StaticPodURL)
	return out
}

// FlagValues returns the values of all flags of fs by name, to be shown by the kubelet's endpoint
// /flagz. It masks passwords and queries of URLs.
func FlagValues(fs *flag.FlagSet) map[string]string {
	out := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { out[f.Name] = withoutPassword(f.Value.String()) })
	return out
}

// withoutPassword masks the password and the query of a URL. A malformed URL is masked
// entirely. Other texts are returned unchanged.
func withoutPassword(v string) string {
	u, err := url.Parse(v)
	switch {
	case err != nil && strings.Contains(v, "://") && strings.ContainsAny(v, "@?"):
		return masked
	case err != nil || u.Host == "":
		return v
	}
	if u.RawQuery != "" {
		u.RawQuery = "masked"
	}
	return u.Redacted()
}
