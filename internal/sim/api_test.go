package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/podmeta"
)

// api is the API server of whole nodes. The pods of the machine are its truth: publish has
// it and the directory of manifests be as they say.
type api struct {
	m      *machine
	server *kubeapitest.Server
	codecs serializer.CodecFactory

	// machine.mu guards these.
	versions map[string]int // of the objects that it has
	reads    map[string]int // calls that change nothing, by what they ask for
	beats    int            // see isBeat
	atRest   int            // beats when the rest began
	ready    bool           // the Node, as it was last
}

func newAPI(m *machine) *api {
	scheme, err := kubeapi.NewScheme()
	if err != nil {
		panic(err)
	}
	a := &api{m: m, server: kubeapitest.New(), codecs: serializer.NewCodecFactory(scheme), versions: map[string]int{}, reads: map[string]int{}}
	a.server.Lean(1000)
	a.server.Handle("serviceaccounts/token", a.token)
	a.server.Create(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})
	return a
}

// token issues tokens as those of issuer.
func (a *api) token(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
	req := body.(*authv1.TokenRequest)
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	ends := a.m.rightTime().Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second)
	req.Status.Token, req.Status.ExpirationTimestamp = fmt.Sprintf("%s token %d", secretMark, ends.Unix()), metav1.NewTime(ends)
	return req, nil
}

// inject makes a fault of the API server begin, and reports whether it lasts until it is
// healed. machine.mu is held.
func (a *api) inject(how string) (lasts bool) {
	switch how {
	case "hang": // calls wait, and watches that are open go on
		a.server.Hang()
	case "slow":
		a.server.Fail(kubeapitest.Slow(8*time.Second, kubeapitest.Any))
	case "errors": // every second call fails
		n := 0
		a.server.Fail(func(kubeapitest.Request) (time.Duration, error) {
			if n++; n%2 == 0 {
				return 0, kubeapitest.Status([]int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}[n/2%3])
			}
			return 0, nil
		})
	case "busy": // it asks for patience
		a.server.Fail(kubeapitest.Refuse(-1, kubeapitest.TooMany(20*time.Second), kubeapitest.Any))
	case "silent": // watches that are open tell of nothing any more
		a.server.Silence()
	default:
		a.m.apiHealed = time.Now()
		switch how {
		case "conflict": // somebody else writes as well
			a.server.Fail(kubeapitest.Refuse(10, kubeapitest.Status(http.StatusConflict), func(q kubeapitest.Request) bool { return q.Verb == "patch" || q.Verb == "update" }))
		case "cut":
			a.server.EndWatches()
		case "gone": // watches begin with a list
			a.server.Compact()
			a.server.EndWatches()
		case "nodeless":
			// Somebody deletes the Node, what it owns goes with it, and the agent is started
			// again: as with the kubelet, it takes that to have another Node.
			defer a.m.killLive()
			a.m.forgetMirrored()
			a.server.Remove(kubeapi.Nodes, "", nodeName)
			a.server.Remove(kubeapi.Leases, v1.NamespaceNodeLease, nodeName)
			for _, o := range a.server.All(kubeapi.Pods) {
				if podmeta.IsMirror(o.(*v1.Pod)) {
					a.server.Remove(kubeapi.Pods, "default", o.(*v1.Pod).Name)
				}
			}
			a.ready, a.m.healed, a.m.well = false, time.Now(), time.Now()
		default:
			a.m.wrong("schedule: api %s is not known", how)
		}
		return false
	}
	return true
}

// killLive kills the agent that lives. machine.mu is held.
func (m *machine) killLive() {
	if l := m.live; l != nil {
		go l.kill()
	}
}

// forgetMirrored has nothing be known any more of the past of static pods: it is in their
// mirrors, and what is left of them in the runtime. machine.mu is held.
func (m *machine) forgetMirrored() {
	for _, p := range m.pods {
		if p.static {
			clear(p.counts)
			clear(p.counted)
			p.rejected = p.rejected || p.over
		}
	}
}

// heal ends all faults of inject. machine.mu is held.
func (a *api) heal() {
	if a != nil {
		a.server.Heal()
		a.server.EndWatches() // those that are silent stay so
	}
}

// cut ends the watches. machine.mu is held.
func (a *api) cut() {
	if a != nil {
		a.server.EndWatches()
	}
}

// publish has the API server and the manifests follow the machine's pods and objects.
func (m *machine) publish() {
	if m.api == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.api.objects()
	pods := make([]*pod, 0, len(m.pods))
	for _, p := range m.pods {
		pods = append(pods, p)
	}
	// Those that went make room for others of their names.
	slices.SortFunc(pods, func(a, b *pod) int {
		if a.gone.IsZero() != b.gone.IsZero() {
			if a.gone.IsZero() {
				return 1
			}
			return -1
		}
		return compare(string(a.object.UID), string(b.object.UID))
	})
	for _, p := range pods {
		if p.static {
			m.writeManifest(p)
		} else {
			m.api.pod(p)
		}
	}
}

// writeManifest has the file of a static pod be there, or not.
func (m *machine) writeManifest(p *pod) {
	file := filepath.Join(m.manifests(), p.object.Name+".json")
	if m.newest(p.object.Name) != p {
		return
	}
	if !p.gone.IsZero() {
		_ = os.Remove(file)
		return
	}
	o := p.object.DeepCopy()
	o.Status = v1.PodStatus{}
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	if len(o.Spec.ResourceClaims) > 0 {
		c := claimFor(o)
		c.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}
		more, err := json.Marshal(c)
		if err != nil {
			panic(err)
		}
		text = slices.Concat(text, []byte("\n---\n"), more)
	}
	if was, _ := os.ReadFile(file); bytes.Equal(was, text) {
		return
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		panic(err)
	}
	_ = os.Rename(file+".new", file)
}

// pod has the API server have a pod, or not. machine.mu is held.
func (a *api) pod(p *pod) {
	name := p.object.Name
	has, _ := a.server.Get(&v1.Pod{}, "default", name).(*v1.Pod)
	if has != nil && has.UID != p.object.UID {
		has = nil
	}
	switch {
	case !p.gone.IsZero():
		if has != nil {
			a.server.Remove(kubeapi.Pods, "default", name)
		}
		if a.server.Get(&resourceapi.ResourceClaim{}, "default", name) != nil && a.m.newest(name) == p {
			a.server.Remove(kubeapi.ResourceClaims, "default", name)
		}
	case has == nil:
		if len(p.object.Spec.ResourceClaims) > 0 {
			a.server.Put(claimFor(p.object))
		}
		o := p.object.DeepCopy()
		o.Spec.NodeName = nodeName
		a.server.Create(o)
	case !p.wanted:
		if has.DeletionTimestamp == nil {
			a.server.Delete(kubeapi.Pods, "default", name)
		}
		if a.server.Get(&v1.Pod{}, "default", name) == nil { // it was over
			p.gone = time.Now()
		}
	default:
		spec := p.object.Spec.DeepCopy()
		spec.NodeName = nodeName
		if !equality.Semantic.DeepEqual(*spec, has.Spec) {
			a.server.Edit(&v1.Pod{}, "default", name, func(o runtime.Object) { o.(*v1.Pod).Spec = *spec })
		}
	}
}

// objects has the API server have the ConfigMaps and Secrets. machine.mu is held.
func (a *api) objects() {
	configs, secrets := a.m.objectsFor()
	there := map[string]bool{}
	for _, o := range configs {
		there["ConfigMap/"+o.Name] = true
		if key := "ConfigMap/" + o.Name; a.versions[key] != a.m.objects[key].version {
			a.versions[key] = a.m.objects[key].version
			o.ResourceVersion = ""
			a.server.Put(o)
		}
	}
	for _, o := range secrets {
		there["Secret/"+o.Name] = true
		if key := "Secret/" + o.Name; a.versions[key] != a.m.objects[key].version {
			a.versions[key] = a.m.objects[key].version
			o.ResourceVersion = ""
			a.server.Put(o)
		}
	}
	for key := range a.versions {
		if kind, name, _ := strings.Cut(key, "/"); !there[key] {
			delete(a.versions, key)
			r := kubeapi.ConfigMaps
			if kind == "Secret" {
				r = kubeapi.Secrets
			}
			a.server.Remove(r, "default", name)
		}
	}
}

// wire is the API server as one life reaches it.
type wire struct {
	l  *life
	to http.RoundTripper
}

// call is what a request is about.
type call struct{ method, resource, namespace, name, sub string }

func callOf(r *http.Request) (c call) {
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if p[0] == "api" {
		p = p[2:]
	} else {
		p = p[3:]
	}
	if p[0] == "namespaces" && len(p) > 2 {
		c.namespace, p = p[1], p[2:]
	}
	c.method, c.resource = r.Method, p[0]
	for i, to := range []*string{&c.name, &c.sub} {
		if len(p) > i+1 {
			*to = p[i+1]
		}
	}
	return c
}

func (c call) String() string {
	return strings.Join(slices.DeleteFunc([]string{c.resource, c.name, c.sub}, func(s string) bool { return s == "" }), "/")
}

// isBeat reports whether an effect is one that a node at rest has as well: it renews its
// lease, says how it is, and keeps the tokens that it renews.
func isBeat(target string) bool {
	return strings.HasPrefix(target, "leases/") || strings.HasPrefix(target, "nodes/") || strings.HasPrefix(target, "/root/cluster/tokens/")
}

// harmless are calls that change nothing: reads, and tokens.
func (c call) harmless() bool {
	return c.method == http.MethodGet || c.sub == "token"
}

// RoundTrip is a call of a life: an effect, if it changes something.
func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	l, m, c := w.l, w.l.m, callOf(r)
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	m.mu.Lock()
	down := m.apiDown
	m.mu.Unlock()
	switch {
	case l.isDead():
		return nil, errDead
	case down:
		return nil, errNoAPI
	}
	if !c.harmless() {
		if err := l.effect(c.method, c.String()+m.api.reason(c, body)); err != nil {
			return nil, err
		}
	}
	done := m.before(c, body)
	resp, err := w.to.RoundTrip(r)
	// A status may have been taken by the server although its answer has not come: that of an
	// agent which was killed meanwhile, for one.
	if err == nil && resp.StatusCode < http.StatusBadRequest || c.resource == "pods" && c.method == http.MethodPatch && c.sub == "status" {
		done(l)
	}
	if l.isDead() && err == nil {
		_ = resp.Body.Close()
		return nil, errDead
	}
	return resp, err
}

// reason is that of an event which is made, or the beginning of what it becomes.
func (a *api) reason(c call, body []byte) string {
	if c.resource != "events" {
		return ""
	}
	e := &v1.Event{}
	if _, _, err := a.codecs.UniversalDeserializer().Decode(body, nil, e); err != nil {
		return " " + string(body[:min(100, len(body))])
	}
	name, _, _ := strings.Cut(cmp.Or(e.InvolvedObject.Name, c.name), ".") // what happens again changes an event
	a.m.mu.Lock()
	a.m.toldOf(strings.TrimSuffix(name, "-"+nodeName), e)
	a.m.mu.Unlock()
	return " " + e.Reason + " of " + e.InvolvedObject.Name + ": " + e.Message[:min(100, len(e.Message))]
}

// before looks at a call before it is made, and returns what is to be done when it
// succeeded.
func (m *machine) before(c call, body []byte) (done func(*life)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.api
	if c.harmless() {
		a.reads[c.resource]++
	}
	switch c.resource {
	case "pods":
	case "nodes":
		return func(*life) { a.nodeTold() }
	default:
		return func(*life) {}
	}
	switch {
	case c.method == http.MethodGet && c.name == "":
		return func(l *life) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if l.spoken.IsZero() {
				l.spoken = time.Now()
			}
		}
	case c.method == http.MethodDelete:
		return a.deletion(c, body)
	case c.method == http.MethodPatch && c.sub == "status":
		return func(l *life) { a.published(l, c.name) }
	case c.method == http.MethodPost && c.sub == "":
		return func(*life) { a.mirrored() }
	}
	return func(*life) {}
}

// has is a pod that the API server has, with that of the machine which it is or stands
// for: that is nil if there is none. machine.mu is held.
func (a *api) has(name string) (o *v1.Pod, p *pod) {
	o, _ = a.server.Get(&v1.Pod{}, "default", name).(*v1.Pod)
	if o == nil {
		return nil, nil
	}
	uid := o.UID
	if of, mirror := o.Annotations[podmeta.AnnotationMirror]; mirror {
		uid = types.UID(of)
	}
	return o, a.m.pods[uid]
}

// deletion looks at the deletion of a pod or of a mirror. machine.mu is held.
func (a *api) deletion(c call, body []byte) (done func(*life)) {
	o, p := a.has(c.name)
	if o == nil {
		return func(*life) {}
	}
	if podmeta.IsMirror(o) {
		return func(*life) { a.m.unmirrored(p) }
	}
	opts := &metav1.DeleteOptions{}
	if len(body) > 0 {
		if _, _, err := a.codecs.UniversalDeserializer().Decode(body, nil, opts); err != nil {
			a.m.wrong("deletion of %s: %v", c.name, err)
		}
	}
	if opts.Preconditions == nil || opts.Preconditions.UID == nil || opts.GracePeriodSeconds == nil {
		a.m.wrong("deletion of %s says neither of which pod nor how: %+v", c.name, opts)
		return func(*life) {}
	}
	if p == nil || *opts.Preconditions.UID != o.UID || !p.gone.IsZero() {
		return func(*life) {}
	}
	a.m.judgeDeletion(p)
	a.m.judgeGivenBack(p, "is deleted")
	return func(*life) {
		a.m.mu.Lock()
		defer a.m.mu.Unlock()
		if p.gone.IsZero() {
			p.wanted, p.gone, p.deleted = false, time.Now(), true
		}
	}
}

// unmirrored notes that the mirror of a pod has gone. That of one that came back a moment ago goes
// with the counts of its earlier life, which may have been published since.
func (m *machine) unmirrored(p *pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p != nil && time.Since(p.since) < startBound {
		clear(p.counts)
		clear(p.counted)
	}
}

// published looks at a status that the API server has taken.
func (a *api) published(l *life, name string) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	o, p := a.has(name)
	if p == nil || !p.gone.IsZero() {
		return
	}
	if p.over && !podmeta.IsTerminal(o.Status.Phase) && !p.beginsAnew() {
		a.m.wrong("status of %s: %s after its end", p.object.Name, o.Status.Phase)
		return
	}
	if a.m.trail {
		a.m.lines = append(a.m.lines, "    "+shown(p.object.Name, o.Status))
	}
	a.m.judgeRefusal(p, &o.Status)
	// One that was rejected after a restart is over at once, and what it had may have to wait for a
	// disk, or a driver.
	if !p.over && podmeta.IsTerminal(o.Status.Phase) && len(o.Status.ContainerStatuses) > 0 && l == a.m.live {
		a.m.judgeGivenBack(p, "is published as over")
	}
	a.m.judgeKeptOut(p, &o.Status)
	a.m.judgeStatus(p, o.Status)
	a.m.judgeEvicted(p, &o.Status)
	a.m.judgeTerminated(p, &o.Status)
	a.m.judgePreempted(p, &o.Status)
	p.object = p.object.DeepCopy()
	p.object.Status = *o.Status.DeepCopy()
}

// mirrored looks at the mirrors after one was made.
func (a *api) mirrored() {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	for _, o := range a.server.All(kubeapi.Pods) {
		o := o.(*v1.Pod)
		of, mirror := o.Annotations[podmeta.AnnotationMirror]
		if p := a.m.pods[types.UID(of)]; mirror && (p == nil || !p.static || p.object.Name+"-"+nodeName != o.Name) {
			a.m.wrong("mirror %s stands for no static pod: %q", o.Name, of)
		}
	}
}

// nodeTold checks the Node after a change: one that was ready stays ready, unless something has
// affected all pods. A start of the agent does not.
func (a *api) nodeTold() {
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.storage.attach()
	n, _ := a.server.Get(&v1.Node{}, "", nodeName).(*v1.Node)
	if n == nil {
		return
	}
	for _, c := range n.Status.Conditions {
		if c.Type != v1.NodeReady {
			continue
		}
		ready := c.Status == v1.ConditionTrue
		if !ready && a.ready && m.troubled == 0 && time.Since(m.well) > startBound {
			m.wrong("the Node is not ready: %s", c.Message)
		}
		a.ready = ready
	}
}

// judgeNode looks at what the API server has of the node and its static pods, when nothing
// has affected any pod for long. machine.mu is held.
func (m *machine) judgeNode() {
	if m.api == nil {
		return
	}
	m.judgeLease()
	n, _ := m.api.server.Get(&v1.Node{}, "", nodeName).(*v1.Node)
	if n == nil {
		m.wrong("the API server has no Node")
		return
	}
	for _, c := range n.Status.Conditions {
		want := v1.ConditionFalse
		if c.Type == v1.NodeReady {
			want = v1.ConditionTrue
		}
		if c.Status != want {
			m.wrong("condition %s of the Node is %s: %s", c.Type, c.Status, c.Message)
		}
	}
	if len(n.Status.Conditions) == 0 {
		m.wrong("the Node has no conditions")
	}
	for _, p := range m.pods {
		if p.static {
			m.judgeMirror(p)
		}
	}
}

// beatsSoFar are the calls that only said that the node lives; 0 without whole nodes.
// machine.mu is held.
func (a *api) beatsSoFar() int {
	if a == nil {
		return 0
	}
	return a.beats
}

// rests begins to count what a node at rest asks for. machine.mu is held.
func (a *api) rests() {
	if a != nil {
		clear(a.reads)
		a.atRest = a.beats
	}
}

// judgeRequests looks at what a node at rest has asked for in restFor, and how often it said
// that it lives. machine.mu is held.
func (a *api) judgeRequests() {
	if a == nil {
		return
	}
	for what, n := range a.reads {
		bound := readsBound
		switch what {
		case "resourceclaims":
			bound = claimsBound
		case "persistentvolumes", "persistentvolumeclaims":
			bound = volumesBound
		}
		if n > bound {
			a.m.wrong("%d calls about %s in %v at rest", n, what, restFor)
		}
	}
	if n, most := a.beats-a.atRest, int(restFor/renewEvery+restFor/reportEvery)+tokensBound; n > most {
		a.m.wrong("%d leases and statuses of the node in %v at rest, want %d at most", n, restFor, most)
	}
}

// judgeBeats looks at the lease, unless something is in its way. machine.mu is held.
func (m *machine) judgeBeats() {
	if m.api != nil && m.troubled == 0 && time.Since(m.healed) > startBound {
		m.judgeLease()
	}
}

// judgeLease looks for a lease that is not renewed. machine.mu is held.
func (m *machine) judgeLease() {
	l, _ := m.api.server.Get(&coordinationv1.Lease{}, v1.NamespaceNodeLease, nodeName).(*coordinationv1.Lease)
	switch {
	case l == nil:
		m.wrong("the node has no lease")
	case time.Since(l.Spec.RenewTime.Time) > leaseBound:
		m.wrong("the lease of the node was renewed %v ago", time.Since(l.Spec.RenewTime.Time))
	}
}

// judgeMirror looks at the mirror of a static pod. machine.mu is held.
func (m *machine) judgeMirror(p *pod) {
	o, _ := m.api.server.Get(&v1.Pod{}, "default", p.object.Name+"-"+nodeName).(*v1.Pod)
	switch of := types.UID(""); {
	case m.newest(p.object.Name) != p:
	case o != nil:
		if of = types.UID(o.Annotations[podmeta.AnnotationMirror]); p.wanted && of != p.object.UID {
			m.wrong("the mirror of %s stands for %q", p.object.Name, of)
		} else if !p.wanted {
			m.wrong("%s is gone, and its mirror is there", p.object.Name)
		} else if podmeta.IsTerminal(o.Status.Phase) && m.running(p.object.UID, p.object.Spec.Containers[0].Name) > 0 {
			m.wrong("%s runs, and its mirror says %s", p.object.Name, o.Status.Phase)
		}
	case p.wanted:
		m.wrong("%s has no mirror", p.object.Name)
	}
}
