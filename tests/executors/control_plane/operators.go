package main

import (
	"flag"
	"os"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlpkg "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	configapi "github.com/kubeflow/trainer/v2/pkg/apis/config/v1alpha1"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
)

func must(err error) {
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
}

func setDefaults(spec *jobset.JobSetSpec) {
	if spec.SuccessPolicy == nil {
		spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll}
	}
	if spec.StartupPolicy == nil {
		spec.StartupPolicy = &jobset.StartupPolicy{StartupPolicyOrder: jobset.AnyOrder}
	}
	if spec.Network == nil {
		spec.Network = &jobset.Network{EnableDNSHostnames: ptr.To(true), PublishNotReadyAddresses: ptr.To(true)}
	}
	for i := range spec.ReplicatedJobs {
		job := &spec.ReplicatedJobs[i].Template.Spec
		if job.CompletionMode == nil {
			job.CompletionMode = ptr.To(batch.IndexedCompletion)
		}
		if job.Template.Spec.RestartPolicy == "" {
			job.Template.Spec.RestartPolicy = core.RestartPolicyOnFailure
		}
	}
}

func main() {
	withTrainer := flag.Bool("trainer", false, "")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{
		clientgoscheme.AddToScheme, jobset.AddToScheme, configapi.AddToScheme, trainer.AddToScheme,
		schedulerplugins.AddToScheme, volcano.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst = 100, 200
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	must(err)
	ctx := ctrl.SetupSignalHandler()
	must(controllers.SetupJobSetIndexes(ctx, mgr.GetFieldIndexer()))
	must(controllers.SetupPodIndexes(ctx, mgr.GetFieldIndexer()))
	must(controllers.NewJobSetReconciler(mgr.GetClient(), mgr.GetScheme(), mgr.GetEventRecorder("jobset")).SetupWithManager(mgr))
	must(controllers.NewPodReconciler(mgr.GetClient(), mgr.GetScheme(), mgr.GetEventRecorder("pod")).SetupWithManager(mgr))
	if *withTrainer {
		runtimes, err := runtimecore.New(ctx, mgr.GetClient(), mgr.GetFieldIndexer(), &configapi.Configuration{})
		must(err)
		_, err = controller.SetupControllers(mgr, runtimes, ctrlpkg.Options{})
		must(err)
	}
	// Stands for JobSet's defaulting webhook.
	go func() {
		mgr.GetCache().WaitForCacheSync(ctx)
		for ; ; time.Sleep(200 * time.Millisecond) {
			var found jobset.JobSetList
			_ = mgr.GetClient().List(ctx, &found)
			for _, each := range found.Items {
				made := each.DeepCopy()
				if setDefaults(&made.Spec); !equality.Semantic.DeepEqual(each.Spec, made.Spec) {
					if err := mgr.GetClient().Patch(ctx, made, client.MergeFrom(&each)); err != nil {
						println(err.Error())
					}
				}
			}
		}
	}()
	must(mgr.Start(ctx))
}
