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

// dockerEntry is the login for one registry in a docker configuration file. Auth is user:password
// in base64; it takes precedence over Username and Password.
type dockerEntry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Email         string `json:"email"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// credential is a login for the images that match a pattern. It is immutable and shared by
// pulls.
type credential struct {
	// pattern is host[:port][/path]; see registryPattern.
	pattern string
	auth    *runtimeapi.AuthConfig
	email   string          // only used for the hash, not for pulls
	secret  *pullSecret     // the Secret that contains the credential; see account
	account *ServiceAccount // the account to which the credential belongs; secret and account are nil for the node's own credentials
}

// hash returns the kubelet's hash of a credential, so that the kubelet's records are valid here.
// The hash depends on the names and the order of the fields below, and on the omission of empty
// ones. It is stored on disk; the credential never is. If it differed from the kubelet's, the only
// effect would be another pull.
func (c credential) hash() string {
	b, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		Email         string `json:"email,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}{c.auth.GetUsername(), c.auth.GetPassword(), c.email, c.auth.GetIdentityToken(), c.auth.GetRegistryToken()})
	// decide skips credentials with an empty hash, which match no record.
	if err != nil {
		return "" // matches no record
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// errNotForPulls means that a Secret is not a pull secret.
var errNotForPulls = fmt.Errorf("the Secret has neither %s nor %s", v1.DockerConfigJsonKey, v1.DockerConfigKey)

// lookup returns the credentials for an image in secrets, the most specific first. skipped names
// the secrets that are not pull secrets. err names the pull secrets that cannot be decoded.
// Neither error contains a part of a secret's data.
func lookup(image string, secrets []*v1.Secret) (creds []credential, skipped, err error) {
	var all []credential
	for _, s := range secrets {
		list, e := parseSecret(s)
		if e != nil {
			e = fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, e)
		}
		// Another type of secret is ignored, as in the kubelet. A broken pull secret may be the
		// one that is needed.
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

// choose returns the credentials that match an image, the longest pattern first. Equal patterns
// keep the order of the pod's secrets.
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

// auths converts credentials to CRI messages, in order.
func auths(creds []credential) (out []*runtimeapi.AuthConfig) {
	for _, c := range creds {
		out = append(out, c.auth)
	}
	return out
}

// parseSecret decodes a pull secret. As in the kubelet, its keys decide which format it has, not
// Secret.Type. If it has both keys, dockerconfigjson is used.
func parseSecret(s *v1.Secret) ([]credential, error) {
	// A Secret from a manifest file may have StringData; an API server would have merged it into
	// Data.
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
		return nil, fmt.Errorf("%s: not valid JSON", v1.DockerConfigKey) // the error must not contain a part of it
	}
	return credentials(entries)
}

// parseDockerConfig decodes a docker config.json. name is for errors. Other parts of the file,
// such as credential helpers, are ignored.
func parseDockerConfig(name string, b []byte) ([]credential, error) {
	var file struct {
		Auths map[string]dockerEntry `json:"auths"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, fmt.Errorf("%s: not valid JSON", name)
	}
	return credentials(file.Auths)
}

// credentials returns one credential for each registry, sorted by name, so that equal patterns
// are always tried in the same order. It fails if one entry is invalid.
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

// authConfig converts an entry to a CRI message. It accepts base64 with and without padding,
// since tools write both. Errors never contain the value.
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

// registryPattern removes the scheme and the API version from a registry's key, such as
// https://index.docker.io/v1/. docker.io becomes index.docker.io, docker's own key for it.
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

// matches reports whether a pattern matches an image. Each label of the host must match as a
// glob, the port must be equal, and the path must be a prefix. A prefix need not end at a slash:
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
	// A star stands for one label: *.io matches registry.io, but not a.registry.io.
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

// splitPort splits a host into its labels and its port. port is "" if there is none.
func splitPort(host string) (labels []string, port string) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	return strings.Split(host, "."), port
}
