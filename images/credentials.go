package images

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dockerEntry is one registry of a docker configuration file.
type dockerEntry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// credential is one registry's word for a pattern of images.
type credential struct {
	pattern string
	auth    *runtimeapi.AuthConfig
}

// lookup returns the credentials of the secrets that are for an image, the
// most particular first. A secret that cannot be read is left out and named in
// the error, beside those that can.
func lookup(image string, secrets []*v1.Secret) ([]*runtimeapi.AuthConfig, error) {
	var (
		found []credential
		errs  []error
	)
	for _, s := range secrets {
		creds, err := parseSecret(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, err))
			continue
		}
		for _, c := range creds {
			if matches(c.pattern, image) {
				found = append(found, c)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b credential) int {
		if d := len(b.pattern) - len(a.pattern); d != 0 {
			return d
		}
		return strings.Compare(b.pattern, a.pattern)
	})
	var out []*runtimeapi.AuthConfig
	for _, c := range found {
		out = append(out, c.auth)
	}
	return out, errors.Join(errs...)
}

// parseSecret reads a secret of type dockerconfigjson or dockercfg.
func parseSecret(s *v1.Secret) ([]credential, error) {
	data := func(key string) []byte {
		if v, ok := s.StringData[key]; ok {
			return []byte(v)
		}
		return s.Data[key]
	}
	entries := map[string]dockerEntry{}
	switch {
	case data(v1.DockerConfigJsonKey) != nil:
		var file struct {
			Auths map[string]dockerEntry `json:"auths"`
		}
		if err := json.Unmarshal(data(v1.DockerConfigJsonKey), &file); err != nil {
			return nil, fmt.Errorf("%s: not valid JSON", v1.DockerConfigJsonKey) // never show a part of it
		}
		entries = file.Auths
	case data(v1.DockerConfigKey) != nil:
		if err := json.Unmarshal(data(v1.DockerConfigKey), &entries); err != nil {
			return nil, fmt.Errorf("%s: not valid JSON", v1.DockerConfigKey)
		}
	default:
		return nil, fmt.Errorf("neither %s nor %s is in it", v1.DockerConfigJsonKey, v1.DockerConfigKey)
	}
	var out []credential
	for registry, e := range entries {
		auth, err := e.authConfig(registry)
		if err != nil {
			return nil, err
		}
		out = append(out, credential{pattern: registryPattern(registry), auth: auth})
	}
	return out, nil
}

func (e dockerEntry) authConfig(registry string) (*runtimeapi.AuthConfig, error) {
	out := &runtimeapi.AuthConfig{
		Username: e.Username, Password: e.Password,
		IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken,
	}
	if e.Auth == "" {
		return out, nil
	}
	raw, err := base64.StdEncoding.DecodeString(e.Auth)
	if err != nil {
		if raw, err = base64.RawStdEncoding.DecodeString(e.Auth); err != nil {
			return nil, fmt.Errorf("auth of %q: not valid base64", registry)
		}
	}
	user, pass, ok := strings.Cut(string(raw), ":")
	if !ok {
		return nil, fmt.Errorf("auth of %q: want user:password in base64", registry)
	}
	out.Username, out.Password = user, pass
	return out, nil
}

// registryPattern takes the scheme and the API version from a registry's key,
// as docker writes it: https://index.docker.io/v1/.
func registryPattern(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, p, _ := strings.Cut(key, "/")
	p = strings.Trim(p, "/")
	if p == "v1" || p == "v2" {
		p = ""
	}
	p = strings.TrimPrefix(strings.TrimPrefix(p, "v1/"), "v2/")
	if host == "docker.io" {
		host = "index.docker.io"
	}
	if p == "" {
		return host
	}
	return host + "/" + p
}

// matches tells whether a pattern is for an image: each label of the host by
// glob, the port equal, the path a prefix.
func matches(pattern, image string) bool {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return false
	}
	host := reference.Domain(named)
	if host == "docker.io" {
		host = "index.docker.io"
	}
	p, err := url.Parse("https://" + pattern)
	if err != nil {
		return false
	}
	i, err := url.Parse("https://" + host + "/" + reference.Path(named))
	if err != nil || p.Port() != i.Port() {
		return false
	}
	want, have := strings.Split(p.Hostname(), "."), strings.Split(i.Hostname(), ".")
	if len(want) != len(have) {
		return false
	}
	for n := range want {
		if ok, err := path.Match(want[n], have[n]); err != nil || !ok {
			return false
		}
	}
	return strings.HasPrefix(i.Path, strings.TrimSuffix(p.Path, "/"))
}
