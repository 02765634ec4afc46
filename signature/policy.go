package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/distribution/reference"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
	"go.uber.org/zap"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/manifestwords"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Limits of a policy.
const (
	maxFile  = 256 << 10 // bytes of the policy, and of a file of keys or certificates
	maxRules = 256
	maxTrust = 100 // keys, certificates or subjects of a rule
)

// Modes of a rule.
const (
	enforce = "enforce" // refuses an image without a valid signature
	warn    = "warn"    // logs an image without a valid signature
	accept  = "accept"  // accepts every image
	refuse  = "refuse"  // refuses every image
)

// all is the repository of the last rule.
const all = "*"

// document is the content of a policy file.
type document struct {
	Rules []ruleDocument `json:"rules"`
}

type ruleDocument struct {
	Repository string            `json:"repository"`
	Mode       string            `json:"mode"`
	Sigstore   *sigstoreDocument `json:"sigstore,omitempty"`
	Notation   *notationDocument `json:"notation,omitempty"`
}

// sigstoreDocument has public keys in PEM, or the names of their files.
type sigstoreDocument struct {
	Keys []string `json:"keys"`
}

// notationDocument has certificates in PEM, or the names of their files.
type notationDocument struct {
	Certificates []string  `json:"certificates"`
	Subjects     []subject `json:"subjects,omitempty"`
}

// rule is a valid rule.
type rule struct {
	line       int
	repository string // a whole one, or the beginning of one up to a "/", or all
	mode       string
	// id identifies what the rule requires. It is "" if present images need no verification.
	id string

	keys         []sigstore.Verifier
	certificates []*x509.Certificate
	subjects     []subject
}

// matches reports whether the rule is for a repository.
func (r *rule) matches(repository string) bool {
	return r.repository == all || r.repository == repository || strings.HasSuffix(r.repository, "/") && strings.HasPrefix(repository, r.repository)
}

// Policy is a policy file. It does not change. Its methods may be called concurrently.
type Policy struct {
	file  string
	rules []rule
	log   *zap.Logger
	warned
}

// Load reads a policy file. It has the names of further files, which are relative to its directory.
// The policy logs images without a valid signature whose rule has the mode warn. If log is nil, nothing
// is logged.
func Load(file string, log *zap.Logger) (*Policy, error) {
	text, err := safefile.ReadLinked(file, maxFile)
	if err != nil {
		return nil, err
	}
	rules, err := parse(text, func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		return safefile.ReadLinked(name, maxFile)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if log == nil {
		log = zap.NewNop()
	}
	return &Policy{file: file, rules: rules, log: log}, nil
}

// parse parses a policy. read returns the content of a file. The error has all mistakes.
func parse(text []byte, read func(name string) ([]byte, error)) ([]rule, error) {
	p := parser{lines: manifestwords.Parse(text), read: read}
	d, err := p.decode(text)
	if err != nil {
		return nil, err
	}
	if n := len(d.Rules); n == 0 || n > maxRules {
		p.bad("rules", "has %d rules; want 1 to %d", n, maxRules)
		return nil, errors.Join(p.errs...)
	}
	rules := make([]rule, 0, len(d.Rules))
	for i, r := range d.Rules {
		rules = append(rules, p.rule(fmt.Sprintf("rules[%d]", i), r))
	}
	for i, r := range d.Rules {
		if last := i == len(d.Rules)-1; last != (r.Repository == all) {
			p.bad(fmt.Sprintf("rules[%d].repository", i), "is %.300q; want %q in the last rule, which decides about all other images, and only there", r.Repository, all)
		}
	}
	return rules, errors.Join(p.errs...)
}

// parser collects the mistakes of a policy.
type parser struct {
	lines manifestwords.Document
	read  func(name string) ([]byte, error)
	errs  []error
}

func (p *parser) bad(field, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("line %d: %s %w", p.lines.Line(field), field, fmt.Errorf(format, args...)))
}

// decode decodes a policy strictly.
func (p *parser) decode(text []byte) (d document, _ error) {
	if manifestguard.MoreDocuments(text) {
		return d, errors.New("policy has several YAML documents; want one")
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		line, words := manifestwords.YAML(text, err)
		if line == 0 {
			return d, errors.New(words)
		}
		return d, fmt.Errorf("line %d: %s", line, words)
	}
	unknown, err := kjson.UnmarshalStrict(raw, &d)
	if err != nil {
		if path, words, ok := manifestwords.Decoding(raw, err); ok {
			p.bad(path, "has the wrong type: %s", words)
		} else {
			p.errs = append(p.errs, err)
		}
	}
	for _, e := range unknown {
		var f kjson.FieldError
		if !errors.As(e, &f) {
			p.errs = append(p.errs, e)
			continue
		}
		meant := ""
		if near := manifestwords.Meant(reflect.TypeFor[document](), f.FieldPath()); near != "" {
			meant = "; did you mean " + near + "?"
		}
		p.bad(f.FieldPath(), "is an unknown field%s", meant)
	}
	return d, errors.Join(p.errs...)
}

func (p *parser) rule(at string, d ruleDocument) rule {
	r := rule{line: p.lines.Line(at), repository: d.Repository, mode: d.Mode}
	if begin, ok := strings.CutSuffix(d.Repository, "/*"); ok {
		r.repository = begin + "/"
		if !isRepository(begin + "/x/x") { // two elements, since docker.io/x would be expanded to docker.io/library/x
			p.badRepository(at, d.Repository)
		}
	} else if d.Repository != all && !isRepository(d.Repository) {
		p.badRepository(at, d.Repository)
	}
	switch hasTrust := d.Sigstore != nil || d.Notation != nil; d.Mode {
	case enforce, warn:
		if !hasTrust {
			p.bad(at, "has the mode %s, but neither sigstore nor notation; want one or both of them", d.Mode)
		}
	case accept, refuse:
		if hasTrust {
			p.bad(at, "has the mode %s, and sigstore or notation; want none of them, or the mode %s or %s", d.Mode, enforce, warn)
		}
	default:
		p.bad(at+".mode", "is %.100q; want %s, %s, %s or %s", d.Mode, enforce, warn, accept, refuse)
	}
	if d.Sigstore != nil {
		r.keys = p.keys(at+".sigstore.keys", d.Sigstore.Keys)
	}
	if d.Notation != nil {
		r.certificates = p.certificates(at+".notation.certificates", d.Notation.Certificates)
		r.subjects = p.subjects(at+".notation.subjects", d.Notation.Subjects)
	}
	if r.mode == enforce || r.mode == refuse {
		r.id = r.identity()
	}
	return r
}

func (p *parser) badRepository(at, value string) {
	p.bad(at+".repository", "is %.300q; want a repository with its registry, such as docker.io/library/nginx, or a part of one and /*, such as registry.example/shop/*, or %q", value, all)
}

// isRepository reports whether a name is the full name of a repository, as images have it.
func isRepository(name string) bool { return name != "" && repositoryOf(name) == name }

// blocks returns the PEM blocks of a list of texts and files.
func (p *parser) blocks(at string, list []string, want string) (out []*pem.Block) {
	if n := len(list); n == 0 || n > maxTrust {
		p.bad(at, "has %d items; want 1 to %d", n, maxTrust)
		return nil
	}
	for i, item := range list {
		field, text := fmt.Sprintf("%s[%d]", at, i), []byte(item)
		if !strings.HasPrefix(strings.TrimSpace(item), "-----BEGIN ") {
			var err error
			if text, err = p.read(item); err != nil {
				p.bad(field, "is %.300q: %w; want a file or a text with %s in PEM", item, err, want)
				continue
			}
		}
		before := len(out)
		for b, rest := pem.Decode(text); b != nil && len(out) < before+maxTrust; b, rest = pem.Decode(rest) {
			out = append(out, b)
			text = rest
		}
		if len(out) == before || len(bytes.TrimSpace(text)) > 0 {
			p.bad(field, "is %.300q; want 1 to %d of %s in PEM, and nothing else", item, maxTrust, want)
		}
	}
	return out
}

// keys parses public keys.
func (p *parser) keys(at string, list []string) (out []sigstore.Verifier) {
	for _, b := range p.blocks(at, list, "public keys") {
		key, err := cryptoutils.UnmarshalPEMToPublicKey(pem.EncodeToMemory(b))
		if err == nil {
			err = checkKey(key)
		}
		if err != nil {
			p.bad(at, "has a %.50q: %w; want public keys: ECDSA, Ed25519, or RSA of 2048 to 4096 bits", b.Type, err)
			continue
		}
		// cosign signs images with SHA-256 for all keys, and bundles with the hash for the key.
		v, err := sigstore.LoadVerifier(key, crypto.SHA256)
		own, err2 := sigstore.LoadDefaultVerifier(key)
		if err := errors.Join(err, err2); err != nil {
			p.bad(at, "has a key that cannot be used: %w", err)
			continue
		}
		out = append(out, v, own)
	}
	return out
}

// checkKey returns an error if a public key has another type or size than signatures may have.
func checkKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < 2048 || n > 4096 {
			return fmt.Errorf("has %d bits", n)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("has the type %T", key)
	}
	return nil
}

// certificates parses certificates.
func (p *parser) certificates(at string, list []string) (out []*x509.Certificate) {
	for _, b := range p.blocks(at, list, "certificates") {
		c, err := x509.ParseCertificate(b.Bytes)
		if b.Type != "CERTIFICATE" {
			err = errors.New("is no certificate")
		}
		if err != nil {
			p.bad(at, "has a %.50q: %w; want certificates", b.Type, err)
			continue
		}
		out = append(out, c)
	}
	return out
}

func (p *parser) subjects(at string, list []subject) []subject {
	if n := len(list); list != nil && (n == 0 || n > maxTrust) {
		p.bad(at, "has %d items; want 1 to %d, or no subjects", n, maxTrust)
	}
	for i, s := range list {
		if s == (subject{}) {
			p.bad(fmt.Sprintf("%s[%d]", at, i), "is empty; want one or more of C, ST, L, O, OU and CN")
		}
	}
	return list
}

// identity returns a text that changes with what the rule requires.
func (r *rule) identity() string {
	sum := sha256.New()
	add := func(b []byte) {
		one := sha256.Sum256(b)
		sum.Write(one[:])
	}
	add([]byte(r.mode))
	for _, v := range r.keys {
		key, _ := v.PublicKey() // of a verifier with a key
		der, _ := x509.MarshalPKIXPublicKey(key)
		add(der)
	}
	add(nil)
	for _, c := range r.certificates {
		add(c.Raw)
	}
	add(nil)
	subjects, _ := json.Marshal(r.subjects)
	add(subjects)
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// repositoryOf returns the full name of an image's repository, or "" if the name is invalid.
func repositoryOf(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return ""
	}
	return named.Name()
}

// rule returns the rule for a repository. The last rule matches every one.
func (p *Policy) rule(repository string) *rule {
	for i := range p.rules {
		if p.rules[i].matches(repository) {
			return &p.rules[i]
		}
	}
	return &p.rules[len(p.rules)-1]
}

// Required identifies what images with a name have to fulfill: a text that changes with the keys and
// certificates. An image that was verified with another text has to be verified again before use. The
// text is "" if images need no verification, or failures are only logged.
func (p *Policy) Required(name string) string { return p.rule(repositoryOf(name)).id }
