// Command controller is a small controller as people write them with controller-runtime:
// it is elected by a Lease, has a cache of pods and ConfigMaps, and for each pod of a label
// keeps a ConfigMap with the pod's phase. It is for trying the API of a node, in place of
// that of a cluster:
//
//	controller -kubeconfig FILE [-label app=web]
//
// It says one line when its cache is filled, and one for each change that it makes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	label := flag.String("label", "app=controlled", "the pods to look after")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(ctrl.SetupSignalHandler(), *label); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, label string) error {
	selector, err := labels.Parse(label)
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig() // of $KUBECONFIG or the flag -kubeconfig
	if err != nil {
		return err
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: selector},
		}},
		Metrics:        server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "controller", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if m.GetCache().WaitForCacheSync(ctx) {
			fmt.Println("synced")
		}
		return nil
	})); err != nil {
		return err
	}
	r := &phases{m.GetClient()}
	if err := ctrl.NewControllerManagedBy(m).For(&corev1.Pod{}).Owns(&corev1.ConfigMap{}).Complete(r); err != nil {
		return err
	}
	return m.Start(ctx)
}

// phases keeps the phase of each pod in a ConfigMap of its name.
type phases struct{ client.Client }

func (r *phases) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := r.Get(ctx, req.NamespacedName, pod); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
		if err := client.IgnoreNotFound(r.Delete(ctx, gone)); err != nil {
			return ctrl.Result{}, err
		}
		fmt.Println(req.Name, "gone")
		return ctrl.Result{}, nil
	}
	phase := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	done, err := controllerutil.CreateOrPatch(ctx, r.Client, phase, func() error {
		phase.Data = map[string]string{"phase": string(pod.Status.Phase)}
		return controllerutil.SetControllerReference(pod, phase, r.Scheme())
	})
	if err == nil && done != controllerutil.OperationResultNone {
		fmt.Println(pod.Name, done, pod.Status.Phase)
	}
	return ctrl.Result{}, err
}
