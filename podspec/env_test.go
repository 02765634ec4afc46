package podspec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// withData adds the objects that the environments of these tests refer to.
func withData(in Input) Input {
	in.ConfigMaps = map[string]*v1.ConfigMap{
		"conf":  {Data: map[string]string{"COLOR": "blue", "SHAPE": "round", "a=b": "x", "größe": "x"}},
		"odd":   {Data: map[string]string{"1st": "x", "a b": "y", "c.d-e": "z"}},
		"empty": {},
	}
	in.Secrets = map[string]*v1.Secret{
		"nul":  {Data: map[string][]byte{"BAD": {'a', 0, 'b'}, "GOOD": []byte("ok")}},
		"cred": {Data: map[string][]byte{"USER": []byte("ann"), "COLOR": []byte("red")}, StringData: map[string]string{"PASS": "s3"}},
	}
	in.PodIPs = []string{"10.1.0.7", "fd00::7"}
	return in
}

// container is the spec of one container with those fields beside its name.
func container(fields string) string {
	return "{enableServiceLinks: false, containers: [{name: app, image: i, " + fields + "}]}"
}

// variables writes a configuration's environment as NAME=VALUE, in order.
func variables(t *testing.T, in Input) string {
	t.Helper()
	var out []string
	for _, kv := range compile(t, in, "app").Envs {
		out = append(out, kv.Key+"="+string(kv.Value))
	}
	return strings.Join(out, " ")
}

func TestEnv(t *testing.T) {
	for _, tc := range []struct {
		name, spec, want string
	}{
		{"none", "", ""},
		{"literals keep their order", "env: [{name: Z, value: z}, {name: A, value: a}]", "Z=z A=a"},
		{"an empty one is set", "env: [{name: A}]", "A="},
		{"the last of a name wins, in the place of the first", "env: [{name: A, value: 1}, {name: B, value: 2}, {name: A, value: 3}]", "A=3 B=2"},
		{"expanded from those before", "env: [{name: A, value: a}, {name: B, value: $(A)-b}]", "A=a B=a-b"},
		{"not from those after", "env: [{name: B, value: $(A)-b}, {name: A, value: a}]", "B=$(A)-b A=a"},
		{"not from itself", "env: [{name: A, value: x$(A)}]", "A=x$(A)"},
		{"from its own earlier value", "env: [{name: A, value: a}, {name: A, value: $(A)b}]", "A=ab"},
		{"escaped", "env: [{name: A, value: a}, {name: B, value: $$(A)}]", "A=a B=$(A)"},
		{"a looked up value is not expanded", "env: [{name: A, value: $(B)}, {name: B, value: $(A)}]", "A=$(B) B=$(B)"},

		{"envFrom leaves invalid names out", "envFrom: [{configMapRef: {name: conf}}]", "COLOR=blue SHAPE=round"},
		{"any printable ASCII makes a name", "envFrom: [{configMapRef: {name: odd}}], env: [{name: A, value: $(1st)$(a b)}]", "1st=x a b=y c.d-e=z A=xy"},
		{"the later envFrom wins", "envFrom: [{configMapRef: {name: conf}}, {secretRef: {name: cred}}]", "COLOR=red SHAPE=round PASS=s3 USER=ann"},
		{"env wins over envFrom", "envFrom: [{configMapRef: {name: conf}}], env: [{name: COLOR, value: own}]", "COLOR=own SHAPE=round"},
		{"expanded from envFrom", "envFrom: [{secretRef: {name: cred}}], env: [{name: URL, value: $(USER)@db}]", "COLOR=red PASS=s3 USER=ann URL=ann@db"},
		{"prefix", "envFrom: [{prefix: p_, configMapRef: {name: conf}}]", "p_COLOR=blue p_SHAPE=round"},
		{"empty configmap", "envFrom: [{configMapRef: {name: empty}}]", ""},
		{"optional and missing", "envFrom: [{configMapRef: {name: gone, optional: true}}, {secretRef: {name: gone, optional: true}}]", ""},

		{"configmap key", "env: [{name: C, valueFrom: {configMapKeyRef: {name: conf, key: COLOR}}}]", "C=blue"},
		{"secret key", "env: [{name: C, valueFrom: {secretKeyRef: {name: cred, key: USER}}}]", "C=ann"},
		{"secret key of stringData", "env: [{name: C, valueFrom: {secretKeyRef: {name: cred, key: PASS}}}]", "C=s3"},
		{"optional object missing", "env: [{name: C, valueFrom: {configMapKeyRef: {name: gone, key: k, optional: true}}}, {name: D, value: d}]", "D=d"},
		{"optional key missing", "env: [{name: C, valueFrom: {secretKeyRef: {name: cred, key: k, optional: true}}}]", ""},
		{"an optional one that is missing leaves the earlier value", "env: [{name: C, value: c}, {name: C, valueFrom: {configMapKeyRef: {name: gone, key: k, optional: true}}}]", "C=c"},
		{"what a reference gives is not expanded, but can be referred to", "env: [{name: C, valueFrom: {configMapKeyRef: {name: conf, key: SHAPE}}}, {name: D, value: very $(C)}]", "C=round D=very round"},

		{"fields", "env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]", "NAME=web IP=10.1.0.7"},
		{"resources", "resources: {limits: {cpu: 1500m}}, env: [{name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]", "C=2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := variables(t, withData(input(t, container(tc.spec)))); got != tc.want {
				t.Errorf("environment = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEnvProblems(t *testing.T) {
	for _, tc := range []struct {
		name, spec, want string
	}{
		{"configmap", "envFrom: [{configMapRef: {name: gone}}]", `spec.containers[0].envFrom[0].configMapRef: configmap "gone" not found`},
		{"secret", "envFrom: [{configMapRef: {name: conf}}, {secretRef: {name: gone}}]", `spec.containers[0].envFrom[1].secretRef: secret "gone" not found`},
		{"optional: false", "envFrom: [{secretRef: {name: gone, optional: false}}]", `spec.containers[0].envFrom[0].secretRef: secret "gone" not found`},
		{"configmap of a key", "env: [{name: A, valueFrom: {configMapKeyRef: {name: gone, key: k}}}]", `spec.containers[0].env[0].valueFrom.configMapKeyRef: configmap "gone" not found`},
		{"key of a configmap", "env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: k}}}]", `spec.containers[0].env[0].valueFrom.configMapKeyRef: couldn't find key k in configmap "conf"`},
		{"secret of a key", "env: [{name: A, valueFrom: {secretKeyRef: {name: gone, key: k}}}]", `spec.containers[0].env[0].valueFrom.secretKeyRef: secret "gone" not found`},
		{"key of a secret", "env: [{name: A, valueFrom: {secretKeyRef: {name: cred, key: k}}}]", `spec.containers[0].env[0].valueFrom.secretKeyRef: couldn't find key k in secret "cred"`},
		{"field", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.replicas}}}]", `spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: "spec.replicas" is not supported`},
		{"resource", "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]", `spec.containers[0].env[0].valueFrom.resourceFieldRef: resource "limits.gpu"`},
		{"NUL of a secret", "envFrom: [{secretRef: {name: nul}}]", `spec.containers[0]: container "app": the value of variable "BAD" has a NUL byte`},
		{"NUL of a key", "env: [{name: A, valueFrom: {secretKeyRef: {name: nul, key: BAD}}}]", `spec.containers[0]: container "app": the value of variable "A" has a NUL byte`},
		{"no source", "env: [{name: A, valueFrom: {}}]", `spec.containers[0].env[0].valueFrom: names no source`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Container(withData(input(t, container(tc.spec))), "app", ContainerOptions{})
			if !strings.HasPrefix(text(err), tc.want) {
				t.Errorf("error = %q, want %q", text(err), tc.want)
			}
			var p Problems
			if !errors.As(err, &p) || p.Reason() != ReasonCreateContainerConfig {
				t.Errorf("reason = %q, want %q", p.Reason(), ReasonCreateContainerConfig)
			}
		})
	}
}

// What replaces a value with a NUL makes the variable a good one.
func TestEnvReplacesNUL(t *testing.T) {
	if got := variables(t, withData(input(t, container("envFrom: [{secretRef: {name: nul}}], env: [{name: BAD, value: fine}]")))); got != "BAD=fine GOOD=ok" {
		t.Errorf("variables are %q", got)
	}
}

func TestEnvTellsEveryProblem(t *testing.T) {
	in := input(t, container("envFrom: [{secretRef: {name: s}}], env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}, {name: B, value: b}]"))
	plan, err := Container(in, "app", ContainerOptions{})
	var p Problems
	if !errors.As(err, &p) || len(p) != 2 {
		t.Fatalf("problems = %v, want two", err)
	}
	if n := len(plan.Config.Envs); n != 1 {
		t.Errorf("%d variables beside the problems, want the one that has none", n)
	}
}

// service is one with those ports, as name:port/protocol.
func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func TestServiceVariables(t *testing.T) {
	db := service("prod", "my-db", "10.0.0.5", v1.ServicePort{Name: "sql-main", Port: 5432}, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP})
	in := input(t, "{containers: [{name: app, image: i}]}")
	in.Services = []*v1.Service{db}
	want := strings.Join([]string{
		"MY_DB_SERVICE_HOST=10.0.0.5", "MY_DB_SERVICE_PORT=5432",
		"MY_DB_SERVICE_PORT_SQL_MAIN=5432", "MY_DB_SERVICE_PORT_DNS=53",
		"MY_DB_PORT=tcp://10.0.0.5:5432",
		"MY_DB_PORT_5432_TCP=tcp://10.0.0.5:5432", "MY_DB_PORT_5432_TCP_PROTO=tcp", "MY_DB_PORT_5432_TCP_PORT=5432", "MY_DB_PORT_5432_TCP_ADDR=10.0.0.5",
		"MY_DB_PORT_53_UDP=udp://10.0.0.5:53", "MY_DB_PORT_53_UDP_PROTO=udp", "MY_DB_PORT_53_UDP_PORT=53", "MY_DB_PORT_53_UDP_ADDR=10.0.0.5",
	}, " ")
	if got := variables(t, in); got != want {
		t.Errorf("environment =\n%s, want\n%s", got, want)
	}

	t.Run("IPv6 is bracketed in URLs only", func(t *testing.T) {
		in.Services = []*v1.Service{service("prod", "six", "fd00::5", v1.ServicePort{Port: 80})}
		got := variables(t, in)
		for _, want := range []string{"SIX_SERVICE_HOST=fd00::5 ", "SIX_PORT=tcp://[fd00::5]:80 ", "SIX_PORT_80_TCP_ADDR=fd00::5"} {
			if !strings.Contains(got, want) {
				t.Errorf("environment = %q, want %q in it", got, want)
			}
		}
	})
}

func TestServiceVariablesOfWhom(t *testing.T) {
	port := v1.ServicePort{Port: 443}
	master := service("default", "kubernetes", "10.0.0.1", port)
	all := []*v1.Service{
		master,
		service("prod", "db", "10.0.0.5", port),
		service("default", "other", "10.0.0.6", port),
		service("stage", "db", "10.0.0.7", port),
		service("prod", "headless", v1.ClusterIPNone, port),
		service("prod", "external", "", port),
		service("prod", "portless", "10.0.0.8"),
	}
	own := service("prod", "kubernetes", "10.0.0.9", port)
	for _, tc := range []struct {
		name, namespace, links string
		services               []*v1.Service
		want                   string
	}{
		{"links", "prod", "true", all, "DB=10.0.0.5 KUBERNETES=10.0.0.1"},
		{"links by default", "prod", "null", all, "DB=10.0.0.5 KUBERNETES=10.0.0.1"},
		{"no links", "prod", "false", all, "KUBERNETES=10.0.0.1"},
		{"of default, links", "default", "true", all, "KUBERNETES=10.0.0.1 OTHER=10.0.0.6"},
		{"of default, no links", "default", "false", all, "KUBERNETES=10.0.0.1"},
		{"own kubernetes wins", "prod", "true", []*v1.Service{own, master}, "KUBERNETES=10.0.0.9"},
		{"own kubernetes wins in any order", "prod", "true", []*v1.Service{master, own}, "KUBERNETES=10.0.0.9"},
		{"own kubernetes without links", "prod", "false", []*v1.Service{own, master}, "KUBERNETES=10.0.0.1"},
		{"no services", "prod", "true", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, "{enableServiceLinks: "+tc.links+", containers: [{name: app, image: i}]}")
			in.Pod.Namespace, in.Services = tc.namespace, tc.services
			var got []string
			for _, v := range compile(t, in, "app").Envs {
				if name, ok := strings.CutSuffix(v.Key, "_SERVICE_HOST"); ok {
					got = append(got, fmt.Sprintf("%s=%s", name, v.Value))
				}
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("services = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestServiceVariablesGiveWay(t *testing.T) {
	in := input(t, `{containers: [{name: app, image: i, args: [$(DB_SERVICE_PORT)], env: [
		{name: DB_SERVICE_HOST, value: own}, {name: URL, value: "$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)"}]}]}`)
	in.Services = []*v1.Service{service("prod", "db", "10.0.0.5", v1.ServicePort{Port: 1})}
	got := variables(t, in)
	if want := "DB_SERVICE_HOST=own URL=own:1 DB_SERVICE_PORT=1 "; !strings.HasPrefix(got, want) {
		t.Errorf("environment = %q, want it to begin with %q", got, want)
	}
	if got := compile(t, in, "app").Args[0]; got != "1" {
		t.Errorf("argument = %q, want it expanded from the service", got)
	}
}
