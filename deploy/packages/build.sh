#!/bin/sh
# Builds the Debian package or the RPM of the agent: deploy/packages/build.sh deb|rpm [FOLDER [WHEELS]]
#
# The package goes into FOLDER (default: dist). WHEELS is a folder that wheelhouse.py has filled; without it, it is filled
# first, which asks the package index. One package serves Python 3.10 to 3.13: the environment is made on the host, from
# the wheels in the package. So plain dpkg-deb and rpmbuild do, which every distribution has: dh-virtualenv would tie a
# package to one Python, nfpm and fpm would be one more tool to trust.
set -eu

cd "$(dirname "$0")/../.."
kind=${1:-}
folder=${2:-dist}
python=${PYTHON:-.venv/bin/python}
case $kind in deb | rpm) ;; *) echo "usage: deploy/packages/build.sh deb|rpm [FOLDER [WHEELS]]" >&2 && exit 2 ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
wheels=${3:-}
if [ -z "$wheels" ]; then
    wheels=$work/wheels
    "$python" deploy/packages/wheelhouse.py "$wheels"
fi
version=$(basename "$wheels"/fallow-*.whl | cut -d - -f 2)

tree=$work/tree
install -d "$tree/usr/bin" "$tree/usr/lib/fallow-agent/wheels"
install -m 644 "$wheels"/*.whl "$tree/usr/lib/fallow-agent/wheels"
install -m 755 deploy/packages/setup "$tree/usr/lib/fallow-agent/setup"
install -D -m 644 deploy/systemd/fallow-agent.service "$tree/usr/lib/systemd/system/fallow-agent.service"
install -D -m 644 deploy/systemd/fallow.sysusers.conf "$tree/usr/lib/sysusers.d/fallow.conf"
install -m 644 deploy/fallow.toml "$tree/usr/lib/fallow-agent/fallow.toml"
install -m 644 requirements/base.txt "$tree/usr/lib/fallow-agent/requirements.txt"
install -D -m 644 LICENSE "$tree/usr/share/doc/fallow-agent/copyright"
ln -s /opt/fallow/bin/fallow "$tree/usr/bin/fallow"

if [ "$kind" = deb ]; then
    architecture=$(dpkg --print-architecture)
    install -d "$tree/DEBIAN"
    cp deploy/packages/deb/* "$tree/DEBIAN"
    sed -i -e "s/@VERSION@/$version-1/" -e "s/@ARCHITECTURE@/$architecture/" "$tree/DEBIAN/control"
    # the wheels are compressed already
    dpkg-deb --root-owner-group -Znone --build "$tree" "$folder/fallow-agent_$version-1_$architecture.deb" >/dev/null
    echo "$folder/fallow-agent_$version-1_$architecture.deb"
else
    rpmbuild -bb --quiet --define "_topdir $work/rpm" --define "_rpmdir $folder" --define "staged $tree" \
        --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" --define "_binary_payload w0.gzdio" \
        --define "version_ $version" --define "release_ 1" deploy/packages/rpm/fallow-agent.spec >&2
    echo "$folder/fallow-agent-$version-1.$(uname -m).rpm"
fi
