package signature

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// Each mistake has its line, field, value and what is allowed.
func TestPolicyMistakes(t *testing.T) {
	k := newKey()
	cert := newSigner("a", time.Now(), time.Now().Add(time.Hour)).ca
	const last = "\n- {repository: '*', mode: refuse}"
	for name, c := range map[string]struct {
		text string
		want []string // of the error; none if the policy is valid
	}{
		"minimal":        {"rules: [{repository: '*', mode: accept}]", nil},
		"inline":         {"rules:\n- repository: '*'\n  mode: enforce\n  sigstore:\n    keys:\n    - |\n      " + strings.ReplaceAll(strings.TrimSpace(k.pem), "\n", "\n      "), nil},
		"two keys":       {"rules: [{repository: '*', mode: enforce, sigstore: {keys: [two.pub]}}]", nil},
		"certificate":    {"rules: [{repository: '*', mode: warn, notation: {certificates: [c.pem], subjects: [{OU: a, L: b}]}}]", nil},
		"empty":          {"", []string{"rules has 0 rules; want 1 to 256"}},
		"no YAML":        {"rules:\n- [", []string{"line 2"}},
		"unknown field":  {"rules:\n- {repository: '*', mod: accept}", []string{"line 2: rules[0].mod is an unknown field; did you mean mode?"}},
		"wrong type":     {"rules:\n- {repository: '*', mode: 7}", []string{"line 2: rules[0].mode has the wrong type: 7 is not a string"}},
		"no list":        {"rules:\n- repository: '*'\n  mode: enforce\n  sigstore:\n    keys: k.pub", []string{"line 5: rules[0].sigstore.keys has the wrong type", "is not a list"}},
		"twice":          {"rules: []\nrules: []", []string{"rules"}},
		"two documents":  {"rules: [{repository: '*', mode: accept}]\n---\nrules: [{repository: '*', mode: refuse}]", []string{"has several YAML documents; want one"}},
		"no last rule":   {"rules:\n- {repository: docker.io/library/x, mode: accept}", []string{"line 2: rules[0].repository is \"docker.io/library/x\"; want \"*\" in the last rule"}},
		"two last rules": {"rules:\n- {repository: '*', mode: accept}" + last, []string{"line 2: rules[0].repository is \"*\"; want \"*\" in the last rule"}},
		"many rules":     {"rules:" + strings.Repeat("\n- {repository: '*', mode: accept}", maxRules+1), []string{"want 1 to 256"}},
		"short name":     {"rules:\n- {repository: nginx, mode: accept}" + last, []string{"line 2: rules[0].repository is \"nginx\"; want a repository with its registry"}},
		"with a tag":     {"rules:\n- {repository: 'docker.io/library/nginx:1', mode: accept}" + last, []string{"rules[0].repository"}},
		"no repository":  {"rules:\n- {mode: accept}" + last, []string{"rules[0].repository is \"\""}},
		"star inside":    {"rules:\n- {repository: docker.io/*/nginx, mode: accept}" + last, []string{"rules[0].repository"}},
		"part of a name": {"rules:\n- {repository: docker.io/library/ng*, mode: accept}" + last, []string{"rules[0].repository"}},
		"whole registry": {"rules:\n- {repository: docker.io/*, mode: accept}\n- {repository: 'localhost:5000/*', mode: accept}" + last, nil},
		"short prefix":   {"rules:\n- {repository: library/*, mode: accept}" + last, []string{"rules[0].repository"}},
		"mode":           {"rules:\n- repository: '*'\n  mode: maybe", []string{"line 3: rules[0].mode is \"maybe\"; want enforce, warn, accept or refuse"}},
		"no trust":       {"rules:\n- {repository: '*', mode: enforce}", []string{"line 2: rules[0] has the mode enforce, but neither sigstore nor notation"}},
		"useless trust":  {"rules:\n- {repository: '*', mode: accept, sigstore: {keys: [k.pub]}}", []string{"has the mode accept, and sigstore or notation"}},
		"no keys":        {"rules:\n- {repository: '*', mode: enforce, sigstore: {keys: []}}", []string{"rules[0].sigstore.keys has 0 items; want 1 to 100"}},
		"no file":        {"rules:\n- {repository: '*', mode: enforce, sigstore: {keys: [none.pub]}}", []string{"rules[0].sigstore.keys[0] is \"none.pub\"", "no such file"}},
		"key is a cert":  {"rules:\n- {repository: '*', mode: enforce, sigstore: {keys: [c.pem]}}", []string{"rules[0].sigstore.keys has a \"CERTIFICATE\""}},
		"cert is a key":  {"rules:\n- {repository: '*', mode: enforce, notation: {certificates: [k.pub]}}", []string{"rules[0].notation.certificates has a \"PUBLIC KEY\""}},
		"no PEM":         {"rules:\n- {repository: '*', mode: enforce, sigstore: {keys: [text]}}", []string{"in PEM, and nothing else"}},
		"text after PEM": {"rules:\n- {repository: '*', mode: enforce, sigstore: {keys: [after]}}", []string{"in PEM, and nothing else"}},
		"empty subject":  {"rules:\n- {repository: '*', mode: enforce, notation: {certificates: [c.pem], subjects: [{}]}}", []string{"subjects[0] is empty; want one or more of C, ST, L, O, OU and CN"}},
		"no subjects":    {"rules:\n- {repository: '*', mode: enforce, notation: {certificates: [c.pem], subjects: []}}", []string{"subjects has 0 items"}},
		"several":        {"rules:\n- {repository: x, mode: maybe}\n- {repository: z, mode: accept}", []string{"rules[0].repository", "rules[0].mode", "rules[1].repository"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.text, map[string]string{"k.pub": k.pem, "two.pub": k.pem + "\n" + newKey().pem, "c.pem": cert, "text": "text", "after": k.pem + "text"})
			if len(c.want) == 0 && err != nil || len(c.want) > 0 && (err == nil || !strings.Contains(err.Error(), "policy.yaml: ")) {
				t.Fatalf("%v; want %q", err, c.want)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v; want %q", err, w)
				}
			}
		})
	}
}

// The first rule that matches decides.
func TestFirstRuleDecides(t *testing.T) {
	p, err := load(t, `rules:
- {repository: docker.io/library/nginx, mode: accept}
- {repository: docker.io/library/*, mode: refuse}
- {repository: docker.io/*, mode: accept}
- {repository: 'localhost:5000/a/*', mode: accept}
- {repository: "*", mode: refuse}
`, map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]int{
		"nginx": 2, "docker.io/library/nginx:1": 2, "nginxx": 3, "docker.io/library/redis": 3, "grafana/grafana": 4, "index.docker.io/library/nginx": 2,
		"localhost:5000/a/b/c": 5, "localhost:5000/ab": 6, "localhost:5000/a": 6, "docker.io.evil.example/library/nginx": 6, "": 6, "UPPER/x": 6,
	} {
		if got := p.rule(repositoryOf(name)).line; got != line {
			t.Errorf("%s: the rule in line %d decides; want line %d", name, got, line)
		}
	}
}

// Whatever the text, parse ends, and a valid policy decides about everything.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(policyText))
	f.Add([]byte("rules:\n- {repository: '*', mode: refuse}"))
	f.Add([]byte("rules: &a [*a]"))
	k, ca := newKey(), newSigner("a", time.Now(), time.Now().Add(time.Hour)).ca
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := parse(text, func(name string) ([]byte, error) {
			switch name {
			case "one.pub":
				return []byte(k.pem), nil
			case "ca.pem":
				return []byte(ca), nil
			}
			return nil, fs.ErrNotExist
		})
		if err != nil {
			return
		}
		p := &Policy{rules: rules}
		if p.rule("").repository != all || p.rule(app) == nil {
			t.Errorf("%s: not every image has a rule", text)
		}
	})
}

// No text but a signed one is a valid signature.
func FuzzSimple(f *testing.F) {
	k := newKey()
	p := simplePayload(image, payload.CosignSignatureType)
	f.Add(p, "")
	f.Add([]byte("null"), "AAAA")
	f.Fuzz(func(t *testing.T, signed []byte, sig string) {
		if verifySimple([]sigstoreVerifier{k}, signed, sig, image) == nil {
			t.Error("a signature that nobody has made is valid")
		}
		_ = verifySimple([]sigstoreVerifier{anyone{}}, signed, sig, image)
	})
}

// No bundle but a signed one is a valid signature.
func FuzzBundle(f *testing.F) {
	k := newKey()
	f.Add(newKey().bundleOf(statementType, statementOf(image, signPredicate)))
	f.Add([]byte(`{"dsseEnvelope":{"signatures":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if verifyBundle(t.Context(), []sigstoreVerifier{k}, data, image) == nil {
			t.Error("a signature that nobody has made is valid")
		}
		_ = verifyBundle(t.Context(), []sigstoreVerifier{anyone{}}, data, image)
	})
}

// No envelope but a signed one is a valid signature.
func FuzzNotation(f *testing.F) {
	now := time.Now()
	pinned, stranger := newSigner("a", now.Add(-time.Hour), now.Add(time.Hour)), newSigner("a", now.Add(-time.Hour), now.Add(time.Hour))
	for _, mediaType := range notationEnvelopes {
		f.Add(mediaType == jws.MediaTypeEnvelope, stranger.sign(mediaType, image, nil))
		f.Add(mediaType == jws.MediaTypeEnvelope, pinned.sign(mediaType, other, nil))
	}
	p := parser{read: func(string) ([]byte, error) { return nil, fs.ErrNotExist }}
	r := &rule{certificates: p.certificates("", []string{pinned.ca})}
	f.Fuzz(func(t *testing.T, isJWS bool, data []byte) {
		mediaType := cose.MediaTypeEnvelope
		if isJWS {
			mediaType = jws.MediaTypeEnvelope
		}
		if verifyNotation(r, mediaType, data, image, time.Now()) == nil {
			t.Error("a signature that nobody has made is valid")
		}
	})
}
