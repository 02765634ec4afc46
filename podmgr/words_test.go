package podmgr

import (
	"strings"
	"testing"
)

// Each mistake that people make has its line, its field, the value and what to write.
func TestMistakesInWords(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n    image: localhost/busybox:1\n"
	for _, tc := range []struct{ name, in, want string }{
		{"unknown field", head + "    imagePullpolicy: Never\n", "/m/a.yaml:9 (default/web): spec.containers[0].imagePullpolicy: unknown field; did you mean imagePullPolicy?"},
		{"field of a probe", head + "    livenessProbe:\n      http: {path: /}\n", ":10 (default/web): spec.containers[0].livenessProbe.http: unknown field; did you mean httpGet?"},
		{"indentation", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n   image: x\n", `:8: "image" is one column left of "name": keys of one object need the same indentation`},
		{"tab", "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: web\n", ":4: begins with a tab; YAML wants spaces"},
		{"second document", head + "---\n" + head + "    tyt: true\n", ":18 (default/web): spec.containers[0].tyt: unknown field; did you mean tty?"},
		{"no name", strings.Replace(head, "  name: web", "  labels: {a: b}", 1), ":3: metadata.name: is missing"},
		{"capitals", strings.Replace(head, "name: web", "name: My_Pod", 1), `:4 (default/My_Pod): metadata.name: "My_Pod": want small letters, digits, - and ., such as "my-pod"`},
		{"version", strings.Replace(head, "v1", "v2", 1), `:1 (default/web): apiVersion: "v2" is not supported; want v1`},
		{"port in quotes", head + "    ports:\n    - containerPort: \"80\"\n", `:10 (default/web): spec.containers[0].ports[0].containerPort: "80" is a string; write 80, without quotes`},
		{"number as a variable", head + "    env:\n    - name: PORT\n      value: 8080\n", `:11 (default/web): spec.containers[0].env[0].value: 8080 is not a string; write "8080", in quotes`},
		{"true in quotes", head + "    tty: \"true\"\n", `:9 (default/web): spec.containers[0].tty: "true" is a string; write true, without quotes`},
		{"comma", head + "    resources:\n      requests:\n        cpu: \"1,5\"\n", `:11 (default/web): spec.containers[0].resources.requests.cpu: "1,5": write 1.5 or 1500m`},
		{"bytes", head + "    resources: {limits: {memory: 128MB}}\n", `:9 (default/web): spec.containers[0].resources.limits.memory: "128MB": write 128M or 128Mi`},
		{"no amount", head + "    resources: {limits: {memory: much}}\n", `"much" is not a quantity; want a number such as 500m`},
		{"Deployment", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", ":2 (default/web): kind: a single node has no Deployment controller; apply the pod itself: spec.template with kind Pod and a name, once for each replica"},
		{"Service", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", "a single node has no Service controller; apply the pod itself, with hostPort or hostNetwork"},
		{"kind in small letters", strings.Replace(head, "kind: Pod", "kind: pod", 1), `kind: "pod" is not supported; did you mean Pod?`},
		{"compose", "services:\n  web:\n    image: x\n", "is not a Kubernetes manifest (no apiVersion, no kind); it looks like a docker compose file"},
		{"no manifest", "a: b\n", "is not a Kubernetes manifest (no apiVersion, no kind)"},
		{"key twice", head + "    image: y\n", "spec.containers[0].image: is set twice"},
		{"volume", head + "    volumeMounts: [{name: data, mountPath: /d}]\n", `spec.containers[0].volumeMounts[0].name: "data" is not a volume of spec.volumes, which is empty`},
		{"near volume", head + "    volumeMounts: [{name: data, mountPath: /d}]\n  volumes: [{name: date, emptyDir: {}}]\n", `"data" is not a volume of spec.volumes, which has date; did you mean date?`},
		{"colon", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: a: b\n", `:4: a second ": " stands in this line`},
		{"quote", "apiVersion: v1\nkind: \"Pod\nmetadata: {name: web}\n", "a quote is not closed"},
		{"bracket", "apiVersion: v1\nkind: Pod\nspec: {containers: [\n", "is not closed"},
	} {
		got := decodeString(tc.in)
		var text []string
		for _, p := range got.problems {
			text = append(text, p.Error())
		}
		if all := strings.Join(text, "\n"); !strings.Contains(all, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, all, tc.want)
		}
	}
}

func TestBackupsAreLeftOut(t *testing.T) {
	for name, want := range map[string]bool{
		"web.yaml": false, "web.yml.txt": false, "web.json": false, "a#b": false, "swp": false,
		"web.yaml~": true, "web.yaml.bak": true, "#web.yaml#": true, "web.yaml.swp": true, "web.yaml.dpkg-old": true, "web.yaml.rpmsave": true,
	} {
		if got := isBackup(name); got != want {
			t.Errorf("isBackup(%q) = %t, want %t", name, got, want)
		}
	}
}

// A refusal of a file is told once, and so is its repair.
func TestMistakesAreTold(t *testing.T) {
	var got []string
	src, err := Directory(DirectoryConfig{Path: "/m", NodeName: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Sources: []Source{src}, Mistakes: func(file string, problems []Problem) {
		got = append(got, file)
		for _, p := range problems {
			got = append(got, p.Error())
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	bad := []Problem{{Source: "file", File: "/m/a.yaml", Line: 3, Reason: "x"}}
	m.logProblems(nil, bad)
	m.logProblems(bad, bad)
	m.logProblems(bad, nil)
	if want := "/m/a.yaml, /m/a.yaml:3: x, /m/a.yaml"; strings.Join(got, ", ") != want {
		t.Errorf("told %q, want %q", got, want)
	}
}
