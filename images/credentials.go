package images

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dockerEntry is one registry of a docker configuration file. Auth is
// user:password in base64, and wins over Username and Password.
type dockerEntry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Email         string `json:"email"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// credential is one registry's word for a pattern of images. It is never
// changed once it was made, and shared by the pulls that use it.
type credential struct {
	// A pattern is host[:port][/path], as registryPattern returns it.
	pattern string
	auth    *runtimeapi.AuthConfig
	email   string          // no registry asks for it, but the hash has it
	secret  *pullSecret     // where it is from, or else
	account *ServiceAccount // whose it is; both nil if it is the node's
}

// hash stands for the content of a credential. It is made as the kubelet makes
// it, so that its records count here; where it should come out otherwise, that
// costs a pull. Names and order of the fields below, and that empty ones are
// left out, are part of it. The hash is kept on disk, the credential never is.
func (c credential) hash() string {
	b, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		Email         string `json:"email,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}{c.auth.GetUsername(), c.auth.GetPassword(), c.email, c.auth.GetIdentityToken(), c.auth.GetRegistryToken()})
	// No record is ever matched by an empty hash: decide passes it over.
	if err != nil {
		return "" // which is equal to none
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// errNotForPulls means that a secret is of another kind.
var errNotForPulls = fmt.Errorf("the Secret has neither %s nor %s", v1.DockerConfigJsonKey, v1.DockerConfigKey)

// lookup returns the credentials of the secrets that are for an image, the
// most particular first. Secrets that are not for pulls are left out, and
// skipped names them; err names those that are, and cannot be understood. Both
// errors name secrets and no part of their contents.
func lookup(image string, secrets []*v1.Secret) (creds []credential, skipped, err error) {
	var all []credential
	for _, s := range secrets {
		list, e := parseSecret(s)
		if e != nil {
			e = fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, e)
		}
		// A secret of another kind is a slip, which the kubelet ignores too; a broken
		// one may be the very credential that is needed.
		if errors.Is(e, errNotForPulls) {
			skipped = errors.Join(skipped, e)
		} else {
			err = errors.Join(err, e)
		}
		for _, c := range list {
			c.secret = &pullSecret{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, CredentialHash: c.hash()}
			all = append(all, c)
		}
	}
	return choose(image, all), skipped, err
}

// choose returns the credentials that are for an image, the most particular
// first. Longer patterns are more particular. Equal ones keep the order of the
// pod's secrets, since the sort is stable, so that the first secret is tried
// first.
func choose(image string, all []credential) (found []credential) {
	for _, c := range all {
		if matches(c.pattern, image) {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b credential) int {
		if d := len(b.pattern) - len(a.pattern); d != 0 {
			return d
		}
		return strings.Compare(b.pattern, a.pattern)
	})
	return found
}

// auths returns the credentials in the form that a runtime takes, in order.
func auths(creds []credential) (out []*runtimeapi.AuthConfig) {
	for _, c := range creds {
		out = append(out, c.auth)
	}
	return out
}

// parseSecret reads a secret of type dockerconfigjson or dockercfg. The type is
// told by the key that is set, not by Secret.Type, as in the kubelet; if both
// keys are set, the newer form wins.
func parseSecret(s *v1.Secret) ([]credential, error) {
	// A Secret that passed no API server may have StringData, which that would
	// have turned into Data.
	data := func(key string) []byte {
		if v, ok := s.StringData[key]; ok {
			return []byte(v)
		}
		return s.Data[key]
	}
	if b := data(v1.DockerConfigJsonKey); len(b) > 0 {
		return parseDockerConfig(v1.DockerConfigJsonKey, b)
	}
	b := data(v1.DockerConfigKey)
	if len(b) == 0 {
		return nil, errNotForPulls
	}
	entries := map[string]dockerEntry{}
	if err := json.Unmarshal(b, &entries); err != nil {
		return nil, fmt.Errorf("%s: not valid JSON", v1.DockerConfigKey) // never show a part of it
	}
	return credentials(entries)
}

// parseDockerConfig reads a config.json of docker, of that name. Name is for
// errors alone. Other parts of such a file, such as credential helpers, are
// ignored.
func parseDockerConfig(name string, b []byte) ([]credential, error) {
	var file struct {
		Auths map[string]dockerEntry `json:"auths"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, fmt.Errorf("%s: not valid JSON", name)
	}
	return credentials(file.Auths)
}

// credentials returns one credential for each registry, in order of the
// registries' names: the order of a map would differ from call to call, and
// with it the order in which equal patterns are tried. One bad entry makes all
// of them an error.
func credentials(entries map[string]dockerEntry) ([]credential, error) {
	var out []credential
	for _, registry := range slices.Sorted(maps.Keys(entries)) {
		auth, err := entries[registry].authConfig(registry)
		if err != nil {
			return nil, err
		}
		out = append(out, credential{pattern: registryPattern(registry), auth: auth, email: entries[registry].Email})
	}
	return out, nil
}

// authConfig returns what a runtime takes. Base64 with and without padding is
// understood, since tools write both; errors never contain the value.
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
// as docker writes it: https://index.docker.io/v1/. docker.io becomes
// index.docker.io, the name under which docker stores its own registry.
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

// matches reports whether a pattern is for an image: each label of the host by
// glob, the port equal, the path a prefix. A prefix need not end at a slash:
// team matches teams/app, as in the kubelet.
func matches(pattern, image string) bool {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return false
	}
	host := reference.Domain(named)
	if host == "docker.io" {
		host = "index.docker.io"
	}
	patternHost, prefix, _ := strings.Cut(pattern, "/")
	want, wantPort := splitPort(patternHost)
	have, havePort := splitPort(host)
	// A star stands for one label only: *.io is for registry.io and not for
	// a.registry.io.
	if wantPort != havePort || len(want) != len(have) {
		return false
	}
	for n := range want {
		if ok, err := path.Match(want[n], have[n]); want[n] != have[n] && (err != nil || !ok) {
			return false
		}
	}
	return strings.HasPrefix(reference.Path(named), strings.TrimSuffix(prefix, "/"))
}

// splitPort takes a host apart into its labels and its port, if it has one.
func splitPort(host string) (labels []string, port string) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	return strings.Split(host, "."), port
}
