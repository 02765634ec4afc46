//go:build linux

package image

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Limits for a directory of hosts. It belongs to the administrator, who can make mistakes.
const (
	maxHostsFile = 1 << 20 // bytes of hosts.toml, and of each certificate
	maxHosts     = 100     // servers in one hosts.toml
	maxCerts     = 100     // certificate files for one host
)

// reach returns the configuration of a host: from its own entry in Config.Registries, or else
// from its directory in HostsDir, or else from the entry "*".
func (s *Store) reach(host string) (Registry, error) {
	if r, ok := s.cfg.Registries[host]; ok {
		return r, nil
	}
	if s.cfg.HostsDir != "" {
		if r, ok, err := s.readHosts(host); ok || err != nil {
			return r, err
		}
	}
	// An entry of its own replaces "*" completely: the two are not merged.
	if r, ok := s.cfg.Registries["*"]; ok {
		return r, nil
	}
	return Registry{Endpoint: reachOf(host)}, nil
}

// reachOf returns the configuration of a host that is configured nowhere. A server on this
// machine may do without TLS. Its certificate is not verified, since a certificate for
// "localhost" proves nothing.
func reachOf(host string) Endpoint {
	name, port, err := net.SplitHostPort(host)
	if err == nil && port != "443" && (name == "localhost" || net.ParseIP(name).IsLoopback()) {
		return Endpoint{PlainHTTP: true, SkipVerify: true}
	}
	return Endpoint{}
}

// readHosts reads the configuration of a host from the first of its directories that exists:
// HOST_PORT_, HOST:PORT, _default.
func (s *Store) readHosts(host string) (r Registry, ok bool, err error) {
	names := []string{host, "_default"}
	if i := strings.LastIndexByte(host, ':'); i > 0 {
		names = slices.Insert(names, 0, host[:i]+"_"+host[i+1:]+"_")
	}
	for _, name := range names {
		dir := filepath.Join(s.cfg.HostsDir, name)
		files, err := safefile.LinkedEntries(dir, maxCerts)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Registry{}, false, fmt.Errorf("%w: registry configuration of %s: %w", errInvalid, host, err)
		}
		file := filepath.Join(dir, "hosts.toml")
		text, err := safefile.ReadLinked(file, maxHostsFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r, err = certificatesIn(dir, files) // Docker's layout
		case err == nil:
			var unused []string
			if r, unused, err = parseHosts(text, dir); len(unused) > 0 {
				s.cfg.Log.Warn("fields of hosts.toml have no effect", zap.String("file", file), zap.Strings("fields", unused))
			}
		}
		if err != nil {
			return Registry{}, false, fmt.Errorf("%w: registry configuration of %s: %s: %w", errInvalid, host, file, err)
		}
		if unsaid := reachOf(host); r.Server == "" && len(r.CA) == 0 {
			r.PlainHTTP, r.SkipVerify = unsaid.PlainHTTP, r.SkipVerify || unsaid.SkipVerify
		}
		return r, true, nil
	}
	return Registry{}, false, nil
}

// hostTable is the table of one server in hosts.toml (containerd, docs/hosts.md).
type hostTable struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`
	Client       any            `toml:"client"`
	SkipVerify   bool           `toml:"skip_verify"`
	Header       map[string]any `toml:"header"`
	OverridePath bool           `toml:"override_path"`
	DialTimeout  string         `toml:"dial_timeout"`
}

// parseHosts parses a hosts.toml, in which paths are relative to dir. unused are the names of
// fields that parseHosts does not know.
func parseHosts(text []byte, dir string) (r Registry, unused []string, err error) {
	var file struct {
		hostTable
		Server string               `toml:"server"`
		Host   map[string]hostTable `toml:"host"`
	}
	d := toml.NewDecoder(strings.NewReader(string(text))).DisallowUnknownFields()
	var unknown *toml.StrictMissingError
	if err := d.Decode(&file); errors.As(err, &unknown) {
		for _, e := range unknown.Errors {
			unused = append(unused, strings.Join(e.Key(), "."))
		}
	} else if err != nil {
		return Registry{}, nil, tomlError(err)
	}
	if len(file.Host) > maxHosts {
		return Registry{}, nil, fmt.Errorf("has %d tables host; want at most %d", len(file.Host), maxHosts)
	}
	if r.Server, r.Endpoint, err = file.hostTable.endpoint(file.Server, dir); err != nil {
		return Registry{}, nil, fmt.Errorf("server %q: %w", file.Server, err)
	}
	for _, at := range hostsInOrder(text) {
		m, table := Mirror{}, file.Host[at]
		if m.Host, m.Endpoint, err = table.endpoint(at, dir); err == nil && m.Host == "" {
			err = errors.New("want a URL")
		}
		if err != nil {
			return Registry{}, nil, fmt.Errorf("host %q: %w", at, err)
		}
		r.Mirrors = append(r.Mirrors, m)
	}
	return r, unused, nil
}

// tomlError adds line and column to an error of the decoder.
func tomlError(err error) error {
	var at *toml.DecodeError
	if errors.As(err, &at) {
		line, column := at.Position()
		return fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return err
}

// hostsInOrder returns the names of the host tables in the order of the file, in which they are
// tried.
func hostsInOrder(text []byte) (out []string) {
	p := unstable.Parser{}
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table {
			continue
		}
		var key []string
		for it := e.Key(); it.Next(); {
			key = append(key, string(it.Node().Data))
		}
		if len(key) > 1 && key[0] == "host" && !slices.Contains(out, key[1]) { // otherwise a table below it
			out = append(out, key[1])
		}
	}
	return out
}

// endpoint returns the server at the URL at. host is the URL's host, with the path that is put
// before repositories. If at is "", the server is the registry itself, and host is "".
func (t *hostTable) endpoint(at, dir string) (host string, e Endpoint, err error) {
	if at != "" {
		if !strings.Contains(at, "://") {
			at = "https://" + at
		}
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return "", Endpoint{}, errors.New("want a URL with http or https and a host, perhaps with a port and a path")
		}
		host, e.PlainHTTP = u.Host, u.Scheme == "http"
		root := path.Clean("/" + u.Path)
		if !t.OverridePath && !strings.HasSuffix(root, "/v2") {
			root = path.Join(root, "v2")
		}
		// A path after /v2 belongs to the repositories' names, also in tokens.
		if before, ok := strings.CutPrefix(root, "/v2/"); ok {
			host += "/" + before
		} else if root != "/v2" {
			e.Root = root
		}
	}
	e.SkipVerify = t.SkipVerify
	if len(t.Capabilities) > 0 {
		e.Lacks = Tags | Content
		for _, c := range t.Capabilities {
			switch strings.ToLower(c) {
			case "resolve":
				e.Lacks &^= Tags
			case "pull":
				e.Lacks &^= Content
			case "push", "referrers": // no use for a node
			default:
				return "", Endpoint{}, fmt.Errorf("capabilities has %.50q; want pull, resolve, push or referrers", c)
			}
		}
	}
	if t.DialTimeout != "" {
		if e.DialTimeout, err = time.ParseDuration(t.DialTimeout); err != nil || e.DialTimeout <= 0 {
			return "", Endpoint{}, fmt.Errorf("dial_timeout is %.50q; want a time such as 10s", t.DialTimeout)
		}
	}
	for name, v := range t.Header {
		values, ok := texts(v)
		if !ok {
			return "", Endpoint{}, fmt.Errorf("header.%s is a %T; want a string or strings", name, v)
		}
		if e.Header == nil {
			e.Header = http.Header{}
		}
		for _, value := range values {
			e.Header.Add(name, value)
		}
	}
	authorities, ok := texts(t.CA)
	if !ok && t.CA != nil {
		return "", Endpoint{}, fmt.Errorf("ca is a %T; want a file or files", t.CA)
	}
	for _, file := range authorities {
		pem, err := readCert(dir, file)
		if err != nil {
			return "", Endpoint{}, fmt.Errorf("ca: %w", err)
		}
		e.CA = slices.Concat(e.CA, pem, []byte("\n"))
	}
	pairs, ok := clientPairs(t.Client)
	if !ok {
		return "", Endpoint{}, errors.New("client has a wrong type; want a file, files, or pairs of a certificate file and a key file")
	}
	for _, p := range pairs {
		if err := e.addClient(dir, p[0], p[1]); err != nil {
			return "", Endpoint{}, fmt.Errorf("client: %w", err)
		}
	}
	return host, e, nil
}

// texts returns a string or a list of strings.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case []any:
		out := make([]string, 0, min(len(v), maxCerts))
		for _, one := range v {
			s, ok := one.(string)
			if !ok || len(out) == maxCerts {
				return nil, false
			}
			out = append(out, s)
		}
		return out, true
	}
	return nil, false
}

// clientPairs returns pairs of files of a certificate and its key, from one file with both,
// several of them, or pairs.
func clientPairs(v any) (out [][2]string, ok bool) {
	if v == nil {
		return nil, true
	}
	if one, ok := v.(string); ok {
		return [][2]string{{one, one}}, true
	}
	list, ok := v.([]any)
	if !ok || len(list) > maxCerts {
		return nil, false
	}
	for _, item := range list {
		switch p, _ := texts(item); {
		case len(p) == 2:
			out = append(out, [2]string{p[0], p[1]})
		case len(p) == 1:
			out = append(out, [2]string{p[0], p[0]})
		default:
			return nil, false
		}
	}
	return out, true
}

func readCert(dir, file string) ([]byte, error) {
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	return safefile.ReadLinked(file, maxHostsFile)
}

func (e *Endpoint) addClient(dir, cert, key string) error {
	c, err := readCert(dir, cert)
	if err != nil {
		return err
	}
	k, err := readCert(dir, key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return fmt.Errorf("%s: %w", cert, err)
	}
	e.Certificates = append(e.Certificates, pair)
	return nil
}

// certificatesIn reads the files of a directory in Docker's layout: NAME.crt is the certificate
// of an authority, NAME.cert and NAME.key are a client's.
func certificatesIn(dir string, files []fs.DirEntry) (r Registry, err error) {
	for _, f := range files {
		base, isClient := strings.CutSuffix(f.Name(), ".cert")
		switch {
		case strings.HasSuffix(f.Name(), ".crt"):
			pem, err := readCert(dir, f.Name())
			if err != nil {
				return Registry{}, err
			}
			r.CA = slices.Concat(r.CA, pem, []byte("\n"))
		case isClient:
			key := base + ".key"
			if !slices.ContainsFunc(files, func(o fs.DirEntry) bool { return o.Name() == key }) {
				key = f.Name()
			}
			if err := r.addClient(dir, f.Name(), key); err != nil {
				return Registry{}, err
			}
		}
	}
	return r, nil
}
