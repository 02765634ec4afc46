package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/podtext"
)

// object is a Kubernetes object that "agent get" lists.
type object interface {
	runtime.Object
	metav1.Object
}

// listed is a type of objects that "agent get" can list.
type listed struct {
	name       string
	others     []string // singular and short names
	namespaced bool
	columns    []podtext.Column
	list       func(c *clientFlags, ctx context.Context, std stdio) ([]object, error)
}

// resources are the types that every agent serves (pods, events, nodes), and the types of the
// Kubernetes API on the agent's socket.
var resources = []listed{
	{"pods", []string{"pod", "po"}, true, podtext.Pods, (*clientFlags).listPods},
	{"events", []string{"event", "ev"}, true, podtext.Events, (*clientFlags).listEvents},
	{"nodes", []string{"node", "no"}, false, podtext.Nodes, (*clientFlags).listNodes},
	{"configmaps", []string{"configmap", "cm"}, true, podtext.ConfigMaps, fromAPI(&v1.ConfigMapList{}, "configmaps")},
	{"secrets", []string{"secret"}, true, podtext.Secrets, fromAPI(&v1.SecretList{}, "secrets")},
	{"namespaces", []string{"namespace", "ns"}, false, podtext.Namespaces, fromAPI(&v1.NamespaceList{}, "namespaces")},
	{"persistentvolumeclaims", []string{"persistentvolumeclaim", "pvc"}, true, podtext.Claims, fromAPI(&v1.PersistentVolumeClaimList{}, "persistentvolumeclaims")},
	{"persistentvolumes", []string{"persistentvolume", "pv"}, false, podtext.Volumes, fromAPI(&v1.PersistentVolumeList{}, "persistentvolumes")},
}

// resourceNamed returns the resource with this name, or nil.
func resourceNamed(name string) *listed {
	i := slices.IndexFunc(resources, func(r listed) bool { return r.name == name || slices.Contains(r.others, name) })
	if i < 0 {
		return nil
	}
	return &resources[i]
}

// images is the name of a resource whose items are not Kubernetes objects.
const images = "images"

func resourceNames() []string {
	var names []string
	for i := range resources {
		names = append(names, resources[i].name)
	}
	return append(names, images)
}

// getFlags are the flags of "agent get".
type getFlags struct {
	clientFlags
	format                 format
	watch, noHeaders, all  bool
	labels, fields, sortBy string
}

func newGet(std stdio) *cobra.Command {
	var g getFlags
	cmd := &cobra.Command{
		Use: "get TYPE[/NAME] [NAME...]", Short: "List pods, events, nodes, images or other objects", SuggestFor: []string{"ps", "ls", "list"},
		Long: "List objects: " + strings.Join(resourceNames(), ", ") + ".\nAll types except pods, events, nodes and images need an agent with --local-api.",
		Example: `  agent get pods -o wide
  agent get pods -l app=web -w
  agent get events --sort-by .lastTimestamp
  agent get pod/web -o jsonpath='{.status.podIP}'
  agent get pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image
  agent get nodes`,
		RunE: func(cmd *cobra.Command, args []string) error { return g.get(cmd.Context(), std, args) },
	}
	g.registerPods(cmd)
	fs := cmd.Flags()
	fs.VarP(&g.format, "output", "o", "the `format`: "+formats)
	fs.BoolVarP(&g.watch, "watch", "w", false, "print changes until Ctrl-C")
	fs.BoolVar(&g.noHeaders, "no-headers", false, "print no column names")
	fs.BoolVarP(&g.all, "all-namespaces", "A", false, "list all namespaces: the default without --namespace")
	fs.StringVarP(&g.labels, "selector", "l", "", "list objects with these `labels`, such as app=web,tier!=test")
	fs.StringVar(&g.fields, "field-selector", "", "list objects with these `fields`, such as status.phase=Running,metadata.name!=web")
	fs.StringVar(&g.sortBy, "sort-by", "", "sort by a `field`, such as .metadata.creationTimestamp")
	completeFlag(cmd, "output", oneOf("wide", "json", "yaml", "name", "jsonpath=", "custom-columns=", "go-template="))
	next := map[string]completer{images: g.from(g.images)}
	for _, name := range []string{"pods", "pod", "po", "events"} {
		next[name] = g.from(g.pods)
	}
	cmd.ValidArgsFunction = after(next, resourceNames()...)
	return cmd
}

func (g *getFlags) get(ctx context.Context, std stdio, args []string) error {
	if g.all {
		g.namespace = ""
	}
	if len(args) == 0 {
		return errors.New("get what? There are " + strings.Join(resourceNames(), ", "))
	}
	kind, names, err := typeAndNames(args)
	if err != nil {
		return err
	}
	if kind == "image" || kind == images {
		return g.getImages(ctx, std, names)
	}
	r := resourceNamed(kind)
	if r == nil {
		return fmt.Errorf("get %q: want one of %s", kind, strings.Join(resourceNames(), ", "))
	}
	if r.name == "pods" {
		r = g.podsOfAgent(r)
	}
	if g.watch && !g.format.isTable() {
		return fmt.Errorf("--watch with --output %q: want wide or name, or no format", g.format.String())
	}
	selected, err := g.selection(ctx, std, r, names)
	if err != nil {
		return err
	}
	if g.watch {
		return g.follow(ctx, std.out, r, selected)
	}
	objects, err := selected(ctx)
	if err != nil {
		return err
	}
	if len(objects) > 0 || !g.format.isTable() {
		if err := g.print(std.out, r, objects, len(names) == 1 && r.name != "events"); err != nil {
			return err
		}
	}
	if !g.format.isTable() {
		return nil
	}
	if r.name == "pods" {
		_ = g.explained(ctx, std, "", nil)
	}
	if len(objects) == 0 {
		where := ""
		if r.namespaced && g.namespace != "" {
			where = fmt.Sprintf(" in namespace %q", g.namespace)
		}
		fmt.Fprintf(std.err, "no %s%s\n", r.name, where)
	}
	return nil
}

// typeAndNames parses TYPE [NAME...] or TYPE/NAME... All names must be of one type.
func typeAndNames(args []string) (kind string, names []string, err error) {
	if !strings.Contains(args[0], "/") {
		return args[0], args[1:], nil
	}
	for _, a := range args {
		k, name, ok := strings.Cut(a, "/")
		if !ok || kind != "" && resourceNamed(k) != resourceNamed(kind) {
			return "", nil, fmt.Errorf("%q: want %s/NAME", a, cmp.Or(kind, "TYPE"))
		}
		kind, names = k, append(names, name)
	}
	return kind, names, nil
}

// selection returns a function that lists the objects selected by the flags and names.
func (g *getFlags) selection(ctx context.Context, std stdio, r *listed, names []string) (func(context.Context) ([]object, error), error) {
	byLabel, err := labels.Parse(g.labels)
	if err != nil {
		return nil, fmt.Errorf("--selector=%q: %w", g.labels, err)
	}
	byField, err := fields.ParseSelector(g.fields)
	if err != nil {
		return nil, fmt.Errorf("--field-selector=%q: %w", g.fields, err)
	}
	less, err := sorting(g.sortBy)
	if err != nil {
		return nil, fmt.Errorf("--sort-by=%q: %w", g.sortBy, err)
	}
	// Names of pods may be short: find returns the full names.
	var chosen []types.NamespacedName
	for _, name := range names {
		if r.name != "pods" {
			chosen = append(chosen, types.NamespacedName{Name: name})
			continue
		}
		p, err := g.find(ctx, g.client(), name)
		if err != nil {
			return nil, g.explained(ctx, std, name, err)
		}
		chosen = append(chosen, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	}
	return func(ctx context.Context) ([]object, error) {
		all, err := r.list(&g.clientFlags, ctx, std)
		if err != nil {
			return nil, err
		}
		found := map[string]bool{}
		var out []object
		for _, o := range all {
			about, named := nameOf(o), len(names) == 0
			if e, ok := o.(*v1.Event); ok {
				about = types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
				named = named || slices.ContainsFunc(names, func(name string) bool { return isAbout(e, name) })
			} else {
				named = named || placeIn(chosen, about) >= 0
			}
			if !named {
				continue
			}
			found[about.Name] = true
			if r.namespaced && g.namespace != "" && about.Namespace != g.namespace && about.Namespace != "" {
				continue
			}
			if byLabel.Matches(labels.Set(o.GetLabels())) && (byField.Empty() || byField.Matches(fieldsOf(o))) {
				out = append(out, o)
			}
		}
		if r.name == "events" && len(out) == 0 {
			for _, name := range names { // an existing pod without events is not an error
				if _, err := g.find(ctx, g.client(), name); err != nil {
					return nil, g.explained(ctx, std, name, err)
				}
			}
		}
		for _, name := range chosen {
			if !found[name.Name] && r.name != "events" && r.name != "pods" {
				return nil, fmt.Errorf("no %s %q", strings.TrimSuffix(r.name, "s"), name.Name)
			}
		}
		switch {
		case less != nil:
			slices.SortStableFunc(out, less)
		case r.name == "pods" && len(chosen) > 0: // in the order of the arguments
			slices.SortStableFunc(out, func(a, b object) int { return placeIn(chosen, nameOf(a)) - placeIn(chosen, nameOf(b)) })
		}
		return out, nil
	}, nil
}

// placeIn returns the index of a name in names, or -1. An element of names without a namespace matches
// in any namespace.
func placeIn(names []types.NamespacedName, name types.NamespacedName) int {
	return slices.IndexFunc(names, func(n types.NamespacedName) bool {
		return n == name || n == types.NamespacedName{Name: name.Name}
	})
}

func nameOf(o object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// listPods returns the pods in the agent's order.
func (c *clientFlags) listPods(ctx context.Context, _ stdio) (out []object, err error) {
	list, err := c.client().Pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		list.Items[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// podsOfAgent returns the resource pods with columns that also show facts which are not in the pods'
// objects: evictions, and the progress of image pulls.
func (g *getFlags) podsOfAgent(pods *listed) *listed {
	r, extra := *pods, map[types.UID]podtext.Extra{}
	r.columns = podtext.PodsWith(func(uid types.UID) podtext.Extra { return extra[uid] })
	r.list = func(c *clientFlags, ctx context.Context, std stdio) ([]object, error) {
		all, err := pods.list(c, ctx, std)
		if err == nil && g.format.isTable() {
			extra = c.extra(ctx, all)
		}
		return all, err
	}
	return &r
}

// extra gets the evictions and the progress of image pulls of pods from the agent, by the pod's UID.
// It leaves out what the agent does not answer.
func (c *clientFlags) extra(ctx context.Context, pods []object) map[types.UID]podtext.Extra {
	out := map[types.UID]podtext.Extra{}
	if events, err := c.client().AllEvents(ctx); err == nil {
		for uid, e := range podtext.EvictionsOf(events.Items) {
			out[uid] = podtext.Extra{Evictions: e}
		}
	}
	if !slices.ContainsFunc(pods, func(o object) bool { return o.(*v1.Pod).Status.Phase == v1.PodPending }) {
		return out
	}
	whys, err := c.client().Whys(ctx)
	if err != nil {
		return out
	}
	for i := range whys {
		e := out[types.UID(whys[i].UID)]
		e.Pull = whys[i].Pull
		out[types.UID(whys[i].UID)] = e
	}
	return out
}

// listEvents returns the events of all pods and of the node, the oldest first. The agent keeps
// the events of a removed pod for an hour.
func (c *clientFlags) listEvents(ctx context.Context, _ stdio) (out []object, err error) {
	all, err := c.client().AllEvents(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		all.Items[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
		out = append(out, &all.Items[i])
	}
	return out, nil
}

// isAbout reports whether an event is about the object with a name. The name may be the name of the
// object, NAMESPACE/NAME, or the name of a static pod in its manifest, without the node's name.
func isAbout(e *v1.Event, name string) bool {
	o := &e.InvolvedObject
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		if namespace != o.Namespace {
			return false
		}
		name = rest
	}
	return o.Name == name || o.Name == name+"-"+strings.ToLower(e.Source.Host)
}

func (c *clientFlags) listNodes(ctx context.Context, _ stdio) ([]object, error) {
	n, err := c.client().Node(ctx)
	if err != nil {
		return nil, err
	}
	return []object{n}, nil
}

// fromAPI returns a function that lists objects from the Kubernetes API of an agent with --local-api.
// name is the plural name of the objects, and empty an empty list of them.
func fromAPI(empty runtime.Object, name string) func(*clientFlags, context.Context, stdio) ([]object, error) {
	return func(c *clientFlags, ctx context.Context, _ stdio) (out []object, err error) {
		list := empty.DeepCopyObject()
		err = c.client().Get(ctx, "/api/v1/"+name, list)
		if errors.Is(err, local.ErrNotFound) {
			return nil, fmt.Errorf("get %s: this agent serves no Kubernetes API: start it with --local-api=socket", name)
		}
		if err != nil {
			return nil, err
		}
		kind := strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")
		err = eachItem(list, func(o object) {
			o.GetObjectKind().SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(kind))
			out = append(out, o)
		})
		return out, err
	}
}

// followInterval is the time between two lists of --watch. It can be short, since a list is a request
// on the same machine.
const followInterval = time.Second

// follow prints the objects that list returns. Then it calls list repeatedly and prints a line for
// each change: first for removed pods, then for new and changed objects. It returns nil when ctx
// ends, or the error of list.
func (g *getFlags) follow(ctx context.Context, w io.Writer, r *listed, list func(context.Context) ([]object, error)) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	out := &podtext.Lines{W: w}
	if !g.noHeaders && g.format.kind != "name" {
		if err := out.Write(g.header(r)); err != nil {
			return err
		}
	}
	shown := map[types.UID]object{}
	var order []types.UID
	for {
		objects, err := list(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		now := time.Now()
		var rows [][]string
		present := map[types.UID]bool{}
		for _, o := range objects {
			present[identity(o)] = true
		}
		order = slices.DeleteFunc(order, func(id types.UID) bool {
			if !present[id] {
				if p, ok := shown[id].(*v1.Pod); ok {
					p.DeletionTimestamp = nil
					p.Status = v1.PodStatus{Reason: "Deleted", PodIP: p.Status.PodIP, StartTime: p.Status.StartTime}
					rows = append(rows, g.row(r, p, now))
				}
				delete(shown, id)
			}
			return !present[id]
		})
		for _, o := range objects {
			old, ok := shown[identity(o)]
			// Compare without ages, which change all the time.
			if !ok {
				order = append(order, identity(o))
			} else if slices.Equal(g.row(r, old, time.Time{}), g.row(r, o, time.Time{})) {
				continue
			}
			shown[identity(o)] = o
			rows = append(rows, g.row(r, o, now))
		}
		if err := out.Write(rows...); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// identity returns the UID of an object, or namespace/name if it has none. The UID
// distinguishes a new object from a removed one with the same name.
func identity(o object) types.UID {
	return cmp.Or(o.GetUID(), types.UID(o.GetNamespace()+"/"+o.GetName()))
}

// header returns the column names of a table.
func (g *getFlags) header(r *listed) []string {
	head := podtext.Header(r.columns, g.format.kind == "wide")
	if r.namespaced {
		return append([]string{"NAMESPACE"}, head...)
	}
	return head
}

// row returns the cells of an object's line in a table.
func (g *getFlags) row(r *listed, o object, now time.Time) []string {
	if g.format.kind == "name" {
		return []string{typedName(o)}
	}
	cells := podtext.Row(r.columns, o, g.format.kind == "wide", now)
	if r.namespaced {
		namespace := o.GetNamespace()
		if e, ok := o.(*v1.Event); ok {
			namespace = e.InvolvedObject.Namespace
		}
		return append([]string{podtext.OrNone(namespace)}, cells...)
	}
	return cells
}

// print writes objects in the format of the flags. If one is true and there is a single object, it
// writes the object itself instead of a list.
func (g *getFlags) print(w io.Writer, r *listed, objects []object, one bool) error {
	if !g.format.isTable() {
		return g.format.write(w, objects, one && len(objects) == 1, g.noHeaders)
	}
	var rows [][]string
	if !g.noHeaders && g.format.kind != "name" {
		rows = append(rows, g.header(r))
	}
	now := time.Now()
	for _, o := range objects {
		rows = append(rows, g.row(r, o, now))
	}
	return (&podtext.Lines{W: w}).Write(rows...)
}

// getImages prints the images with these names, or all images if there are no names.
func (g *getFlags) getImages(ctx context.Context, std stdio, names []string) error {
	switch {
	case g.watch, g.labels != "", g.fields != "", g.sortBy != "":
		return errors.New("get images: want no --watch, --selector, --field-selector and --sort-by")
	case g.format.kind != "" && g.format.kind != "wide" && g.format.kind != "json":
		return fmt.Errorf("get images: --output %q: want json", g.format.String())
	}
	list, err := g.client().Images(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		list.Images = slices.DeleteFunc(list.Images, func(i local.Image) bool { return !slices.Contains(names, i.Name) })
	}
	return printImages(std.out, list, g.format.kind == "json")
}

var oneLine = podtext.OneLine

func printProblems(w io.Writer, problems []local.Problem) {
	for _, p := range problems {
		fmt.Fprintln(w, "problem: "+problemLine(p))
	}
}
func problemLine(p local.Problem) string {
	var b strings.Builder
	b.WriteString(p.Place())
	if p.Document > 0 && p.Line == 0 {
		fmt.Fprintf(&b, " document %d", p.Document)
	}
	if p.Pod != "" {
		fmt.Fprintf(&b, " (%s)", p.Pod)
	}
	b.WriteString(": " + p.Text())
	if p.Kept {
		b.WriteString("; its last good version stays in effect")
	}
	return b.String()
}
