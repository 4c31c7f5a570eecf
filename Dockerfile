# JupyterLab with the Workbench in the sidebar, without GPUs, as a user that isn't root:
#   docker build -t dask-workbench .
#   docker run --rm -p 127.0.0.1:8888:8888 dask-workbench
# In the image only /home/jovyan is written to. Keep runs with: -v workbench:/home/jovyan/.local/share/dask-workbench
FROM python:3.12-slim
RUN useradd --create-home --uid 1000 jovyan && install -d -o jovyan /home/jovyan/.local/share/dask-workbench
COPY . /tmp/source
# In one layer, or what built the Lab extension would stay in the image.
RUN cd /tmp/source && pip install --no-cache-dir -c constraints.txt '.[lab,fast,files]' \
  && cp -r notebooks /home/jovyan/notebooks && chown -R jovyan /home/jovyan && rm -rf /tmp/source /root/.npm /root/.cache
USER jovyan
WORKDIR /home/jovyan/notebooks
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--LabApp.default_url=/lab/tree/start.ipynb"]
